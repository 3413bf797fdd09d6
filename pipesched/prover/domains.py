"""Sizes in words: ``every p >= 1 and m >= 1``, ``p = 4, every m >= 1 with m % 4 == 0``."""

from __future__ import annotations

import re

from pipesched.prover.presburger import Set

_RULES = (
    (r"\((-?\w+)\) mod (\d+) = (\d+)", r"\1 % \2 == \3"),
    (r"\b(\w+) > (-?\d+)\b", lambda found: f"{found[1]} >= {int(found[2]) + 1}"),
    (r"(?<![<>=!]) = ", " == "),
)


def domain(sizes: Set) -> str:
    """The sizes of a set."""
    said = str(sizes.coalesce())
    inside = said[said.index("{") + 1 : said.rindex("}")].strip()
    conditions = inside.split(":", 1)[1].strip() if ":" in inside else ""
    for pattern, with_ in _RULES:
        conditions = re.sub(pattern, with_, conditions)
    return conditions or "every size"
