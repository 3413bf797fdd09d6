"""Placement and sizes, from what a user names and what has a default.

linear   0 1 2 3                    one stage a rank
loop     0 1 2 3 0 1 2 3            v stages a rank, around
vee      0 1 2 3 3 2 1 0            and back
0,1,1,0                             a rank for each stage
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from pipesched.diagnostics import Code, fail
from pipesched.model.numbers import require_counts
from pipesched.model.placement import Placement

PLACEMENTS = ("linear", "loop", "vee")
MAX_OPS = 2_000_000

Asked: TypeAlias = str | tuple[int, ...] | Placement | None


def sizes_of(asked: Asked, given: Mapping[str, int]) -> dict[str, int]:
    """p, v and m; where nothing tells them 4, 1 (2 of a loop or vee) and 2p. No v where the placement lists ranks.

    Raises:
        PipeschedError: PS208, PS225, sizes that are none, or too many operations.
    """
    unknown = sorted(set(given) - {"p", "v", "m"})
    if unknown:
        raise fail(Code.PARAMETER_UNKNOWN, f"without a schedule there are p, v and m; not {', '.join(unknown)}")
    if isinstance(asked, Placement):
        return {"p": asked.ranks, "m": asked.microbatches}
    p = given.get("p", max(asked) + 1 if isinstance(asked, tuple) and asked else 4)
    sizes = {"p": p, "v": given.get("v", 2 if asked in ("loop", "vee") else 1), "m": given.get("m", 2 * p)}
    require_counts(sizes.items())
    stages = p * sizes["v"]
    if isinstance(asked, tuple):
        _check_listed(asked, given, p)
        stages = len(asked)
        del sizes["v"]
    operations = 3 * stages * sizes["m"]
    if operations > MAX_OPS:
        raise fail(Code.USAGE, f"{operations:,} operations; at most {MAX_OPS:,} can be optimized")
    return sizes


def placement_at(asked: Asked, sizes: Mapping[str, int]) -> Placement:
    """The placement at these sizes.

    Raises:
        PipeschedError: PS225, a linear placement with several stages a rank.
    """
    if isinstance(asked, Placement):
        return asked
    p, m = sizes["p"], sizes["m"]
    if isinstance(asked, tuple):
        ranks = list(asked)
    else:
        v = sizes["v"]
        name = asked or ("linear" if v == 1 else "loop")
        if name == "linear" and v != 1:
            raise fail(Code.USAGE, f"a linear placement has one stage a rank; v is {v}", help="use loop or vee")
        turn = list(range(p))
        ranks = [r for chunk in range(v) for r in (turn if name != "vee" or chunk % 2 == 0 else turn[::-1])]
    return Placement(np.array([ranks], dtype=np.int32), np.zeros(m, dtype=np.int32), p, ("",))


def _check_listed(ranks: tuple[int, ...], given: Mapping[str, int], p: int) -> None:
    """Every rank has a stage, and as many as told."""
    listed = ",".join(map(str, ranks[:16])) + (",…" if len(ranks) > 16 else "")
    missing = sorted(set(range(min(p, len(ranks) + 1))) - set(ranks))
    beyond = [rank for rank in ranks if not 0 <= rank < p]
    if missing or beyond:
        wrong = f"rank {missing[0]} has no stage" if missing else f"there is no rank {beyond[0]}"
        raise fail(
            Code.USAGE, f"the placement {listed} is none of {p} ranks: {wrong}", help="give a rank to each stage"
        )
    if given.get("v", 1) * p != len(ranks) and "v" in given:
        raise fail(Code.USAGE, f"the placement {listed} has {len(ranks)} stages; p={p} v={given['v']} have others")
