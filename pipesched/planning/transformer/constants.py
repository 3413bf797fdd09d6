"""Constants of times by shape: fitted to published runs, each with its spread and its prior.

`python -m tests.bench.published fit` regenerates constants.toml. A constant with `from = "prior"` keeps its value from
before the fit, since the runs do not determine it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import cast

from pipesched.support.foreign import toml_of

FILE = Path(__file__).with_name("constants.toml")


@dataclass(frozen=True, eq=False)
class Constants:
    """Constants by name. errors: for each class of runs, the errors of its predictions."""

    of: Mapping[str, Fraction]
    errors: Mapping[str, Mapping[str, float]]

    def __getitem__(self, name: str) -> Fraction:
        return self.of[name]


@lru_cache(maxsize=1)
def fitted() -> Constants:
    """Return the constants of constants.toml."""
    read = cast("dict[str, dict[str, dict[str, str]]]", toml_of(FILE.read_text("utf-8")))
    of = {name: Fraction(row["value"]) for name, row in read["constants"].items()}
    return Constants(of, {name: {key: float(x) for key, x in row.items()} for name, row in read["errors"].items()})
