"""Domains as text: ``every size with p >= 1 and m >= 1``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pipesched.prover.presburger import Set

_RULES = (
    (r"\((-?\w+)\) mod (\d+) = (\d+)", r"\1 % \2 == \3"),
    (r"\b(\w+) > (-?\d+)\b", lambda found: f"{found[1]} >= {int(found[2]) + 1}"),
    (r"(?<![<>=!]) = ", " == "),
    (r"-(\d+) \+ (\w+)", r"\2 - \1"),
    (r"\bh == 0\b", "m % p == 0"),
    (r"\bg >= 1\b", "m >= p"),
    (r"\bg >= (\d+)\b", r"m >= \1p"),
    (r"\bg\b", "m // p"),
    (r"\bh\b", "m % p"),
)


def domain(sizes: Set, also: Sequence[str] = ()) -> str:
    """Describe a set of sizes. also: further conditions, as the file writes them."""
    said = str(sizes.coalesce().remove_redundancies())
    inside = said[said.index("{") + 1 : said.rindex("}")].strip()
    conditions = inside.split(":", 1)[1].strip() if ":" in inside else ""
    for pattern, with_ in _RULES:
        conditions = re.sub(pattern, with_, conditions)
    if also and " or " in re.sub(r"\((?:[^()]|\([^()]*\))*\)", "", conditions):
        conditions = f"({conditions})"
    whole = " and ".join([*also, *filter(None, [conditions])])
    return "no size" if conditions == "false" else f"every size with {whole}" if whole else "every size"
