"""A run that was measured: the order that ran, and when every operation of it began and ended, step by step.

    begin ── waits for its input ── computes ── end        in nanoseconds from the first operation of the run

The clocks of the ranks are taken to agree; `analysis.running` tells where they cannot.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipesched.model.columns import Ints
from pipesched.model.schedule import Schedule


@dataclass(frozen=True, eq=False)
class Measured:
    """begin, end, waited: shape (steps, operations); both parts of an overlap pair have its times.

    waited: the part of an operation that it waited for a message, or None where nobody measured that. kernels: whether
    a device ran on behind these times.
    """

    schedule: Schedule
    begin: Ints
    end: Ints
    waited: Ints | None
    kernels: bool = False

    @property
    def steps(self) -> int:
        return int(self.begin.shape[0])
