"""Microbatches that are named one by one, in even steps, are a loop too.

    B(7)  B(6)  B(5)  B(4)  B(3)  B(2)  B(1)  B(0)        for i in 0 .. 8 { B(7 - i) }

Such a series is one letter: its k-th occurrence on a rank names first + k * step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from pipesched.model.columns import Bools, Column, Ints

LEAST = 4
"""So many are a series; fewer may be chance."""


@dataclass(frozen=True, slots=True)
class Series:
    """The microbatches first, first + step, …; turn: the number of the series among those of its rank and chunk."""

    first: int
    step: int
    turn: int = 0

    def at(self, offset: int, stride: int) -> str:
        """What stands in brackets, the i-th time of a loop in which the series goes on by `stride` each time."""
        base, slope = self.first + self.step * offset, self.step * stride
        if not slope:
            return str(base)
        times = "i" if abs(slope) == 1 else f"{abs(slope)} * i"
        if slope < 0:
            return f"{base} - {times}"
        return f"{times} + {base}" if base else times


def series(
    groups: Iterable[Ints], op: Column, microbatch: Column, next_ones: Bools, paired: Bools
) -> dict[int, Series]:
    """The series that each operation belongs to, for those that do.

    groups: the places of the operations of a rank, a chunk and a kind, in order. next_ones: which of them need no name.
    """
    found: dict[int, Series] = {}
    for group in groups:
        if bool(np.all(next_ones[group])):
            continue
        for kind in np.unique(op[group]).tolist():
            here = group[(op[group] == kind) & ~paired[group]]
            for turn, (low, high) in enumerate(_even(microbatch[here].tolist())):
                if not bool(np.all(next_ones[here[low:high]])):
                    first, second = microbatch[here[low : low + 2]].tolist()
                    found |= dict.fromkeys(here[low:high].tolist(), Series(first, second - first, turn))
    return found


def _even(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """The longest parts in even steps, from the left."""
    low = 0
    while low + LEAST <= len(numbers):
        step, high = numbers[low + 1] - numbers[low], low + 2
        while high < len(numbers) and numbers[high] - numbers[high - 1] == step:
            high += 1
        if high - low >= LEAST:
            yield low, high
            low = high
        else:
            low += 1
