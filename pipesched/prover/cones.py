"""Cones of costs: the costs that satisfy linear conditions, as nonnegative combinations of finitely many generators.

For example, the cone tW <= min(tF, tI) is spanned by F = 1, I = 1, and F = I = W = 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import gcd, lcm
from typing import TypeAlias

Form = Mapping[str, Fraction]
"""A linear form: the weight of each cost in a sum of costs."""
Row: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Cone:
    """A cone: the nonnegative costs for which every form is at least 0."""

    names: tuple[str, ...]
    forms: tuple[tuple[Fraction, ...], ...]

    @classmethod
    def of(cls, names: Sequence[str], forms: Sequence[Form]) -> Cone:
        """Return the cone on which these forms are at least 0."""
        return cls(tuple(names), tuple(tuple(form.get(name, Fraction(0)) for name in names) for form in forms))

    def cut(self, form: Form) -> list[Cone]:
        """Split the cone by a form: the part where it is at least 0, and the part where it is at most 0."""
        row = tuple(form.get(name, Fraction(0)) for name in self.names)
        return [Cone(self.names, (*self.forms, tuple(sign * x for x in row))) for sign in (1, -1)]

    def ray(self, costs: Mapping[str, int]) -> Cone | None:
        """Return the cone of the multiples of some costs; None if the costs are outside this cone, or are all 0."""
        row = tuple(Fraction(costs.get(name, 0)) for name in self.names)
        if not any(row) or any(_times(form, row) < 0 for form in self.forms):
            return None
        lead = next(k for k, x in enumerate(row) if x)
        forms = []
        for at in range(len(row)):
            form = [Fraction(0)] * len(row)
            form[at], form[lead] = row[lead], form[lead] - row[at]
            forms += [tuple(form), tuple(-x for x in form)] if at != lead else []
        return Cone(self.names, tuple(forms))

    @cached_property
    def generators(self) -> list[dict[str, int]]:
        """The generators, in whole numbers: the edges of the cone of all nonnegative costs, cut by one form after
        another.
        """
        size = len(self.names)
        rows = edges = [tuple(int(k == at) for k in range(size)) for at in range(size)]
        for form in map(_whole, filter(any, self.forms)):
            rows, edges = [*rows, form], [*dict.fromkeys(_cut(rows, edges, form))]
        return [dict(zip(self.names, ray, strict=True)) for ray in sorted(edges, reverse=True)]

    def sign(self, form: Form) -> int | None:
        """Return 1 if a form is at least 0 on the whole cone, -1 if it is at most 0, 0 if it is 0, or None if its sign
        changes.
        """
        values = [sum(form.get(name, Fraction(0)) * x for name, x in ray.items()) for ray in self.generators]
        if all(x == 0 for x in values):
            return 0
        return 1 if all(x >= 0 for x in values) else -1 if all(x <= 0 for x in values) else None


def _cut(rows: Sequence[Row], edges: Sequence[Row], form: Row) -> Iterator[Row]:
    """Yield the edges of the part of a cone where a form is at least 0. rows: the forms of the cone."""
    zeros = {edge: {k for k, row in enumerate(rows) if not _times(row, edge)} for edge in edges}
    inside = {edge: value for edge in edges if (value := _times(form, edge)) >= 0}
    yield from inside
    for first, second in product(inside, (edge for edge in edges if edge not in inside)):
        both = zeros[first] & zeros[second]
        if inside[first] and not any(both <= zeros[x] for x in edges if x not in (first, second)):  # edges of one face
            yield _whole([inside[first] * y - _times(form, second) * x for x, y in zip(first, second, strict=True)])


def _times(row: Sequence[Fraction | int], ray: Sequence[Fraction | int]) -> Fraction | int:
    return sum(x * y for x, y in zip(row, ray, strict=True))


def _whole(ray: Sequence[Fraction | int]) -> tuple[int, ...]:
    scale = lcm(*(x.denominator for x in ray))
    whole = [int(x * scale) for x in ray]
    common = gcd(*whole) or 1
    return tuple(x // common for x in whole)
