"""What of a measured operation is work, and what is waiting for its input.

    input made                |-------- on its way --------|
    operation        begin ---|------ waits ---------------|== works ==| end
                              produced                     start

Where the trace tells how long an operation waited, start is begin + waited. Where it does not, as in torch's records,
which hold the wait and the work, an operation starts no earlier than its input is made: what it waited for the message
itself then counts as work, and only operations whose input was made before they began show their work alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipesched.analysis.dependencies import Dependencies
from pipesched.model.columns import Bools, Ints
from pipesched.model.measured import Measured


@dataclass(frozen=True, eq=False)
class Running:
    """Shape (steps, operations) throughout, in nanoseconds; both parts of a pair have the same times.

    start, end: of the work, and of the operation. produced: when the input from another rank was made, or the begin of
    an operation without one. waiting: whether the operation had begun before that. told: whether waits were measured.
    """

    start: Ints
    end: Ints
    produced: Ints
    waiting: Bools
    told: bool

    @property
    def work(self) -> Ints:
        return self.end - self.start

    @property
    def skew(self) -> int:
        """How much later than its use some input was made, by clocks that therefore disagree; 0 if never."""
        used = self.start if self.told else self.end
        return max(int((self.produced - used).max(initial=0)), 0)


def running(measured: Measured) -> Running:
    """The work of every operation of every step."""
    dependencies = Dependencies.of(measured.schedule)
    made = np.where(dependencies.crosses, measured.end[:, dependencies.producer], measured.begin)
    produced = _of_pairs(measured, made)
    waiting = produced > measured.begin
    if measured.waited is not None:
        start = np.minimum(measured.begin + measured.waited, measured.end)
    else:
        start = np.clip(produced, measured.begin, measured.end)
    return Running(start, measured.end, produced, waiting, measured.waited is not None)


def _of_pairs(measured: Measured, values: Ints) -> Ints:
    """The later of both parts, for both parts of a pair."""
    second = np.flatnonzero(measured.schedule.joined)
    if len(second):
        values = values.copy()
        later = np.maximum(values[:, second - 1], values[:, second])
        values[:, second - 1] = values[:, second] = later
    return values
