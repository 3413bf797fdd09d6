"""The unit of times: times without a unit are exact; times on a device have three significant digits.

    NO_UNIT         33   11/2                the user's own unit: costs such as F=1,B=2
    MILLISECONDS    2.9 s   52.8 ms   336 us        a model on its device

All code that prints times uses the unit of the costs. JSON contains the exact numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from pipesched.model.numbers import Ladder, quantity, shown

_SECONDS: Ladder = (("s", Fraction(1)), ("ms", Fraction(1, 1000)), ("us", Fraction(1, 10**6)))


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of time. name: ``ms``; empty if times have no unit. words: the plural. seconds: seconds per unit, or 0."""

    name: str = ""
    words: str = ""
    seconds: Fraction = Fraction(0)

    def __bool__(self) -> bool:
        return bool(self.name)

    def text(self, value: Fraction | int) -> str:
        """Format a time: ``2.9 s``; without a unit exactly, ``11/2``."""
        if not self:
            return shown(value)
        return quantity(value * self.seconds, _SECONDS) if value else f"0 {self.name}"

    def more(self, value: Fraction | int) -> str:
        """Format a difference, with its sign."""
        return f"{'+' * (value > 0)}{self.text(value)}"

    def below(self, value: Fraction | int, following: Fraction | int, exactly: str = "at most ") -> str:
        """Format an upper bound: ``at most 17``; if rounded, the next larger value: ``less than 2.9 s``."""
        return f"less than {self.text(following)}" if self else f"{exactly}{shown(value)}"

    def mark(self, value: Fraction | int) -> str:
        """Format a round time on an axis, with all its digits."""
        seconds = value * self.seconds
        name, size = next((one for one in _SECONDS if abs(seconds) >= one[1]), (self.name, self.seconds))
        return f"{shown(seconds / size)} {name}" if self else shown(value)

    def range(self, values: Iterable[Fraction]) -> str:
        """Format one time, or the smallest and the largest: ``51.4 ms to 55.8 ms``."""
        ends = sorted(values)
        return " to ".join(dict.fromkeys(self.text(x) for x in (ends[0], ends[-1])))


NO_UNIT = Unit()
MILLISECONDS = Unit("ms", "milliseconds", Fraction(1, 1000))
MICROSECONDS = Unit("us", "microseconds", Fraction(1, 10**6))
SECONDS = Unit("s", "seconds", Fraction(1))

UNITS: Mapping[str, Unit] = {unit.name: unit for unit in (NO_UNIT, MILLISECONDS, MICROSECONDS, SECONDS)}
