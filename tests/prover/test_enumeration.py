"""The points of a set, and the values at these points, equal those that isl enumerates one by one."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from pipesched.prover.enumeration import points, values
from tests.depth import deep

isl = pytest.importorskip("islpy")
TERMS = ("p", "m", "r", "i", "p - r", "m - i", "floor(i/2)", "floor((m + r)/3)", "2i", "i mod 3", "r mod 2", "1", "4")
VALUE = "[p, m] -> {{ [r, i] -> [({0}) - ({1})] : {2} >= {3}; [r, i] -> [{3}] : {2} < {3} }}"


def listed(of: Any) -> list[tuple[tuple[int, ...], Any]]:
    """Return the points of a set, each with isl's own, in order."""
    found: list[Any] = []
    of.foreach_point(found.append)
    kind = isl.dim_type
    at = [*((kind.param, k) for k in range(2)), *((kind.set, k) for k in range(2))]
    return sorted(
        ((tuple(x.get_coordinate_val(*each).to_python() for each in at), x) for x in found), key=lambda pair: pair[0]
    )


def test_points_and_values_are_those_of_isl() -> None:
    """Sets of conditions with quotients, of one piece or of several, some empty; an expression by cases."""
    rng, context, some = random.Random(0), isl.Context(), 0
    sizes = np.array([(p, m) for p in range(1, 4) for m in range(1, 6, 2)])
    within = " or ".join(f"(p = {p} and m = {m})" for p, m in sizes.tolist())
    box = isl.Set.read_from_str(context, f"[p, m] -> {{ [r, i] : 0 <= r < p and 0 <= i <= 2m and ({within}) }}")
    for _ in range(deep(40)):
        chosen = [rng.choice(TERMS) for _ in range(8)]
        a, b, c, d, e, f, g, _ = chosen
        asked = f"{a} {rng.choice(('<', '>=', '='))} {b} and ({c} <= {d} or {e} >= {f} + {g})"
        of = isl.Set.read_from_str(context, f"[p, m] -> {{ [r, i] : 0 <= r < p and 0 <= i <= 2m and {asked} }}")
        value = isl.PwMultiAff.read_from_str(context, VALUE.format(*chosen[4:8]))
        rows, own = points(of, sizes), listed(of.intersect(box))
        assert [tuple(row) for row in rows.tolist()] == [at for at, _ in own], asked
        expression = value.get_pw_aff(0)
        assert values(expression, rows).tolist() == [expression.eval(x).to_python() for _, x in own]
        some += len(own)
    assert some
