"""Numbers in base p have the same values as integers: sums, quotients and comparisons at sample points equal
Python's."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from pipesched.prover.digits import DigitSpace, Number
from tests.depth import deep

isl = pytest.importorskip("islpy")
NAMES = ("p", "g", "h", "r", "i0p", "i0")
POINTS = sorted({(p, *rest) for p in (1, 2, 5) for rest in product((0, 3), (0, p - 1), (0, p - 1), (0, 4), (0, p - 1))})


def valued(of: Number, point: Any) -> int:
    first, last, p = (x.eval(point).to_python() for x in (of.first, of.last, of.space.raw("p")))
    return int(first * p + last)


def test_numbers_in_base_p_are_integers() -> None:
    """A random sum of m, p, the rank and a loop's variable: its digits, quotients, remainders and sign."""
    rng, space = random.Random(0), DigitSpace(isl.Context(), NAMES[:3], NAMES[3:])
    conditions = [" and ".join(f"{name} = {x}" for name, x in zip(NAMES, point, strict=True)) for point in POINTS]
    text = "[p, g, h] -> {{ [r, i0p, i0] : {} }}"
    at = [isl.Set.read_from_str(space.context, text.format(each)).sample_point() for each in conditions]
    terms = [space.number(1), *map(space.named, ("m", "p", "r", "i0"))]
    for _ in range(deep(5)):
        weights, turns = [rng.randrange(-3, 4) for _ in terms], rng.randrange(1, 4)
        total: Number = space.combination([*map(Fraction, weights)], terms)
        by_number = total.divided(space.number(turns))
        by_p = total.divided(space.named("p").scale_val(space.value(turns)))
        signs = total.nonneg_set(), total.zero_set(), total.pos_set()
        assert by_number is not None and by_p is not None
        for point, (p, g, h, r, i, j) in zip(at, POINTS, strict=True):
            exact = sum(w * x for w, x in zip(weights, (1, g * p + h, p, r, i * p + j), strict=True))
            assert valued(total, point) == exact
            assert tuple(valued(x, point) for x in by_number[:2]) == divmod(exact, turns)
            assert tuple(valued(x, point) for x in by_p[:2]) == divmod(exact, turns * p)
            assert tuple(x.eval(point).to_python() for x in space.digits(total)) == divmod(exact, p)
            inside = [isl.Set.from_point(point).is_subset(each) for each in signs]
            assert inside == [exact >= 0, exact == 0, exact > 0]
