"""How many activations a rank holds.

That depends on the order of a rank's own operations and on nothing else, so it is a running sum over that list, and
exact whatever the timing. One rule of `model.release`:

    F  +1      I  -at_input      W  -at_weight      B  -1          of what its stage counts (`Release.change`)

F takes at its start and the others free at their end, so in an overlap pair the F counts before the B. Without any
backward nothing is kept for one: there an F frees at its own end what it took. The unit is one microbatch through 1/p
of the model: an even stage counts ranks / stages, any other tM times that. Buffers of messages, parameters, gradients
of parameters, optimizer states and workspace are not counted (`analysis.buffers` counts messages).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np

from pipesched.diagnostics import Code, fail
from pipesched.model.columns import Ints, running_sum
from pipesched.model.ops import COMPUTES
from pipesched.model.release import Release
from pipesched.model.schedule import Schedule


@dataclass(frozen=True, eq=False)
class Memory:
    """held: after each operation, in parts; one part is `part` of the unit. peak_at: per rank the operation at which
    most is held first, -1 on a rank without operations. sizes: what an F of each stage holds, in even stages.
    """

    schedule: Schedule
    release: Release
    held: Ints
    part: Fraction
    peak_at: tuple[int, ...]
    sizes: tuple[Fraction, ...]

    @property
    def peak(self) -> tuple[Fraction, ...]:
        """Most activations live at once, by rank, in the unit."""
        return tuple(max(self.at(i), Fraction(0)) if i >= 0 else Fraction(0) for i in self.peak_at)

    def at(self, index: int) -> Fraction:
        """What the operation's rank holds after it (for an F, from its start on)."""
        return int(self.held[index]) * self.part

    def first_over(self, rank: int, cap: Fraction) -> int:
        """The first operation of a rank at which more than `cap` is held, or -1."""
        low, high = int(self.schedule.start[rank]), int(self.schedule.start[rank + 1])
        over = np.flatnonzero(self.held[low:high] > int(cap / self.part // 1))
        return low + int(over[0]) if len(over) else -1

    def live(self, index: int) -> list[tuple[int, int]]:
        """(stage, microbatch) of all that is held when the operation runs, oldest first."""
        low = index if self.schedule.forward_only else int(self.schedule.start[self.schedule.rank[index]])
        left: dict[tuple[int, int], Fraction] = {}
        for i in range(low, index + 1):
            op = self.schedule[i]
            key = (op.stage, op.microbatch)
            left[key] = left.get(key, Fraction(0)) + self.release.change(op.op)
        return [key for key, share in left.items() if share * self.size(key[0]) > 0]

    def size(self, stage: int) -> Fraction:
        """What an F of a stage holds, in even stages; a stage that is none counts as the one next to it."""
        return self.sizes[min(max(stage, 0), len(self.sizes) - 1)]


def memory(schedule: Schedule, release: Release, sizes: Sequence[Fraction] | None = None) -> Memory:
    """The running sum of every rank; O(operations).

    sizes: what one F of each stage holds, shape (S,), in even stages; by default 1.

    Raises:
        PipeschedError: PS222, sizes and shares too fine, or too large, for sums in 64 bits.
    """
    sizes = (Fraction(1),) * schedule.stages if sizes is None else tuple(sizes)
    change = [release.change(op) for op in COMPUTES]
    parts = lcm(*(x.denominator for x in change)) * lcm(*(x.denominator for x in sizes))
    if parts * max(map(abs, change)) * max(sizes, default=Fraction(0)) * max(len(schedule), 1) >= 2**62:
        raise fail(Code.COSTS, "what the ranks hold leaves 64 bits", help="use rounder shares for M and the release")
    held = _changes(schedule, [[int(x * size * parts) for size in sizes] for x in change])
    if not schedule.forward_only:
        held = running_sum(held, schedule.start)
    peaks = []
    for low, high in zip(schedule.start[:-1].tolist(), schedule.start[1:].tolist(), strict=True):
        peaks.append(low + int(np.argmax(held[low:high])) if high > low else -1)
    part = Fraction(schedule.ranks, schedule.stages) / parts
    return Memory(schedule, release, held, part, tuple(peaks), sizes)


def _changes(schedule: Schedule, table: list[list[int]]) -> Ints:
    """What every operation takes or frees, in parts; table: by kind and by stage."""
    whole = np.array(table, dtype=np.int64)
    if (whole == whole[:, :1]).all():  # even stages: one look-up fewer
        return np.asarray(whole[:, 0][schedule.op])
    return np.asarray(whole[schedule.op, np.clip(schedule.stage, 0, schedule.stages - 1)])
