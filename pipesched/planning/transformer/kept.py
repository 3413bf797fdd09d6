"""Ratios of measured to predicted bytes of layers, as written by ``run --rank R --model M -o FILE``.

layer      kept from F to the backward         stored   also kept from I to W
working    temporary bytes of a B               split    temporary bytes of an I

[kept]
layer = 1.38
stored = 1.0
working = 1.21
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from pipesched.diagnostics import fail
from pipesched.library import inputs
from pipesched.planning import toml
from pipesched.planning.codes import PlanningCode

NAMES = ("layer", "stored", "working", "split")
MOST = 100


@dataclass(frozen=True)
class Kept:
    """The factors in a file."""

    path: str
    layer: Fraction = Fraction(1)
    stored: Fraction = Fraction(1)
    working: Fraction = Fraction(1)
    split: Fraction = Fraction(1)

    def __str__(self) -> str:
        return self.path


def read(path: str) -> Kept:
    """Return the factors in a file.

    Raises:
        PipeschedError: PS230: the file is not TOML; PS233: it has no factors, or an invalid one; PS809.
    """
    source = inputs.read_path(path)
    values, _ = toml.read(source, PlanningCode.MODEL_SYNTAX, toml.exact)
    found = {name: values.get(f"kept.{name}", Fraction(1)) for name in NAMES}
    if not any(key.startswith("kept.") for key in values):
        help = "pipesched run SCHEDULE --rank R --stages FILE.py:FUNCTION --model MODEL -o kept.toml writes them"
        raise fail(PlanningCode.MODEL_VALUE, f"{source.name} has no factors in [kept]", help=help)
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, int | Fraction) or not 0 < value <= MOST:
            raise fail(PlanningCode.MODEL_VALUE, f"kept.{name} is {value!r}, not a positive factor up to {MOST}"[:120])
    return Kept(path, *(Fraction(str(value)) for value in found.values()))


def table(factors: Sequence[Fraction | None]) -> list[str]:
    """Return the lines of a file with these factors; a factor that was not measured is omitted."""
    said = zip(NAMES, factors, strict=True)
    return ["[kept]", *(f"{name} = {float(value):.4f}" for name, value in said if value is not None)]
