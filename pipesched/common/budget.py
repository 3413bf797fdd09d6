"""A work budget for files that our own code reads step by step: 4 units per byte, plus 100,000."""

from __future__ import annotations

from pipesched.support.budget import Spent

EACH, SPARE = 4, 100_000


class Budget:
    """The units of work that reading a file of `size` bytes may take."""

    def __init__(self, size: int, each: int = EACH) -> None:
        self.left = self.units = each * size + SPARE

    def spend(self, units: int, what: str) -> None:
        """Charge units of work.

        Raises:
            Spent: too few units are left.
        """
        self.left -= units
        if self.left < 0:
            raise Spent(f"its {what} take more than {self.units:,} steps, more than any file of its size needs")
