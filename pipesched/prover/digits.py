"""Numbers in base p, for files that divide by p while p varies: a value is ``q * p + j``.

    m = g p + h           0 <= h < p
    k = K p + k'          0 <= k' < p
    (K p + k' + w) // p   K, K + 1, …

A size is written as (p, g, h). A loop over k becomes two loops, over K and over k'. A quotient by p is K, or K + 1
where k' + w >= p, and so on: one case for each multiple of p that k' + w can reach. The product q * p is never formed:
values are compared digit by digit, with a case for each carry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, reduce
from math import lcm
from typing import TypeAlias

from pipesched.prover.presburger import PwAff, Set, Space, TooHard, Value, case, denominator, isl, spend

CARRIES = 64  # most distinct carries
PIECES = 48  # most cases of a number with distinct carries, for each pair of carries
Bounds: TypeAlias = "tuple[Fraction, Fraction] | None"
"""Bounds of a last digit in multiples of p: ``low * p <= j < high * p``; None if they are unknown."""


class Uncarried(Exception):
    """The carries of a last digit cannot be enumerated: its bounds as multiples of p are unknown or too wide."""


@dataclass(frozen=True, eq=False)
class DigitSpace(Space):
    """A space of points in base p. Its parameters are p, g and h; a dimension `xp` is the first digit of `x`."""

    @property
    def width(self) -> int:
        """The number of digits of a value."""
        return 2

    def number(self, value: int | Fraction) -> Number:
        """Return a constant."""
        exact = Fraction(value)
        return Number(self, self.constant(0), self.constant(exact), _around(exact))

    def named(self, name: str) -> Number:
        """Return the size or dimension with this name."""
        if name == "p":
            return Number(self, self.constant(1), self.constant(0), _around(Fraction(0)))
        high, low = ("g", "h") if name == "m" else (f"{name}p", name)
        known = high in self.dims or high in self.parameters
        first = self.raw(high) if known else self.constant(0)
        bounds = (Fraction(0), Fraction(1)) if known or name in ("r", "h") else None
        return Number(self, first, self.raw(low), bounds)

    @cached_property
    def inside(self) -> Set:
        """The points whose rank and last digits are from 0 to p - 1."""
        made = self.universe
        for name in (*self.parameters, *self.dims):
            if f"{name}p" in self.dims or name in ("r", "h"):
                made = made.intersect(self.raw(name).nonneg_set()).intersect(self.raw(name).lt_set(self.raw("p")))
        return made

    def last(self, name: str) -> Number:
        """Return the number for a last digit or the rank, by its name; for ``p``, p; for an empty name, 1."""
        if name in ("", "p"):
            return self.named("p") if name else self.number(1)
        return Number(self, self.constant(0), self.raw(name), (Fraction(0), Fraction(1)))

    def half(self, digit: PwAff) -> Number:
        """Return half of a last digit, or of its sum with p, as a number."""
        return Number(self, self.constant(0), digit, (Fraction(0), Fraction(1)))

    def times_p(self, digit: PwAff) -> Number:
        """Return a digit times p."""
        return Number(self, digit, self.constant(0), _around(Fraction(0)))

    def digits(self, value: Number) -> list[PwAff]:
        """Return the two digits of a number in base p, the high one first; the low one is from 0 to p - 1."""
        return [*value.normal()]

    def joined(self, digits: list[PwAff]) -> Number:
        """Return the number with these digits."""
        return Number(self, digits[0], digits[1], (Fraction(0), Fraction(1)))

    def polynomial(self, value: Number, on: Set) -> Value:
        """Return a number as a polynomial of sizes."""
        first, last, p = (
            isl().PwQPolynomial.from_pw_aff(x.intersect_domain(on)) for x in (value.first, value.last, self.raw("p"))
        )
        return first.mul(p).add(last)

    def less_one(self) -> str:
        """Return the text of the map from a number to the number before it."""
        own = f"[{', '.join(self.parameters)}]"
        return f"{own} -> {{ [q, j] -> [q, j - 1] : j >= 1; [q, j] -> [q - 1, p - 1] : j = 0 and q != 0 }}"

    def naturals(self) -> str:
        """Return the text of the set of all numbers that are at least 0."""
        return f"[{', '.join(self.parameters)}] -> {{ [q, j] : q >= 0 and 0 <= j < p }}"


def _around(value: Fraction) -> Bounds:
    """Return the bounds of a constant in multiples of p, assuming p >= 1."""
    return (min(value, Fraction(0)), max(value, Fraction(0)) + 1)


def constant(of: PwAff) -> Fraction | None:
    """Return the value of a constant expression, or None."""
    pieces = of.get_pieces()
    if len(pieces) != 1 or not pieces[0][1].is_cst():
        return None
    return Fraction(str(pieces[0][1].get_constant_val()))


@dataclass(frozen=True, eq=False)
class Number:
    """The number ``first * p + last``. The class has those methods of an isl expression that the prover calls."""

    space: DigitSpace
    first: PwAff
    last: PwAff
    bounds: Bounds

    def _made(self, first: PwAff, last: PwAff, bounds: Bounds) -> Number:
        return Number(self.space, first, last, bounds)

    # Arithmetic

    def add(self, other: Number) -> Number:
        """Return the sum."""
        both = self.bounds and other.bounds and _sum(self.bounds, other.bounds)
        return self._made(self.first.add(other.first), self.last.add(other.last), both)

    def neg(self) -> Number:
        """Return the negative."""
        return self.scale_val(self.space.value(-1))

    def sub(self, other: Number) -> Number:
        """Return the difference."""
        return self.add(other.neg())

    def scale_val(self, by: Value) -> Number:
        """Return a multiple."""
        factor = Fraction(str(by))
        return self._made(
            self.first.scale_val(by), self.last.scale_val(by), self.bounds and _times(self.bounds, factor)
        )

    def scale_down_val(self, by: Value) -> Number:
        """Return a quotient, which may be a fraction."""
        return self.scale_val(self.space.value(1 / Fraction(str(by))))

    def min(self, other: Number) -> Number:
        """Return the smaller of two numbers."""
        return choose(self.le_set(other), self, other)

    def max(self, other: Number) -> Number:
        """Return the larger of two numbers."""
        return choose(self.ge_set(other), self, other)

    def intersect_domain(self, where: Set) -> Number:
        """Return the number restricted to a part of its domain."""
        return self._made(self.first.intersect_domain(where), self.last.intersect_domain(where), self.bounds)

    def subtract_domain(self, where: Set) -> Number:
        """Return the number restricted to the outside of a set."""
        return self._made(self.first.subtract_domain(where), self.last.subtract_domain(where), self.bounds)

    def union_add(self, other: Number) -> Number:
        """Return the union of two numbers with disjoint domains."""
        hull = None
        if self.bounds and other.bounds:
            hull = min(self.bounds[0], other.bounds[0]), max(self.bounds[1], other.bounds[1])
        return self._made(self.first.union_add(other.first), self.last.union_add(other.last), hull)

    def gist(self, within: Set) -> Number:
        """Return a simpler number that has the same values within a set."""
        return self._made(self.first.gist(within), self.last.gist(within), self.bounds)

    def n_piece(self) -> int:
        """Return the number of cases."""
        return int(self.first.n_piece() * self.last.n_piece())

    def domain(self) -> Set:
        """Return the set where the number is defined."""
        return self.first.domain().intersect(self.last.domain())

    # Carries

    @cached_property
    def carries(self) -> range:
        """The values of ``last // p``, as far as they follow from the rank and last digits being below p."""
        if self.bounds is None:
            raise Uncarried
        low, high = self.bounds[0].__floor__(), self.bounds[1].__ceil__()
        if high - low > CARRIES:
            raise Uncarried
        spend(high - low)
        inside = self.space.inside
        while low + 1 < high and inside.is_disjoint(self.last.lt_set(self._multiple(low + 1))):
            low += 1
        while low + 1 < high and inside.is_disjoint(self.last.ge_set(self._multiple(high - 1))):
            high -= 1
        return range(low, high)

    def _multiple(self, k: int) -> PwAff:
        return self.space.raw("p").scale_val(self.space.value(k))

    def carry(self) -> PwAff:
        """Return ``last // p``."""
        return self._stepped(lambda _: self.space.constant(1))

    def _stepped(self, step: Callable[[int], PwAff]) -> PwAff:
        """Return ``k * step(k)``, where k is ``last // p``, with a case for each k."""
        carries = self.carries
        if self.last.n_piece() * len(carries) > PIECES:
            raise TooHard
        total: PwAff | None = None
        for k in carries:
            where = self.last.domain()
            if k > carries.start:
                where = where.intersect(self.last.ge_set(self._multiple(k)))
            if k + 1 < carries.stop:
                where = where.intersect(self.last.lt_set(self._multiple(k + 1)))
            value = step(k).scale_val(self.space.value(k)).intersect_domain(where)
            total = value if total is None else total.union_add(value)
        assert total is not None
        return total

    def normal(self) -> tuple[PwAff, PwAff]:
        """Return the digits, the last of them from 0 to p - 1. A number that is not whole is rounded down."""
        if (parts := lcm(denominator(self.first), denominator(self.last))) > 1:
            return self.scale_val(self.space.value(parts))._by_number(parts)[0].normal()
        if self.carries == range(1):
            return self.first, self.last
        return self.first.add(self.carry()), self.last.sub(self._stepped(lambda _: self.space.raw("p")))

    # Comparisons

    def _whole(self) -> Number:
        """Return the number times a positive factor that makes its first digit whole."""
        factor = denominator(self.first)
        return self if factor == 1 else self.scale_val(self.space.value(factor))

    def _pieces(self, exact: Callable[[PwAff], Set], carried: Callable[[PwAff], Set]) -> Set:
        """Return the union of conditions on the pieces of the first digit: `exact` where it is constant, else
        `carried`.
        """
        found = self.space.universe.complement()
        for where, first in self.first.get_pieces():
            if first.is_cst():
                own = exact(self.last.add(self.space.raw("p").scale_val(first.get_constant_val())))
            else:
                own = carried(isl().PwAff.from_aff(first))
            found = found.union(own.intersect(where))
        return found.coalesce()

    def nonneg_set(self) -> Set:
        """Return the set where the number is at least 0."""
        own = self._whole()
        return own._pieces(lambda x: x.nonneg_set(), lambda first: _union(own._reaching(first)))

    def _reaching(self, first: PwAff) -> Iterator[Set]:
        """Yield, for each carry k, the set where last >= k p and first + k = 0, then the set where the first digit
        determines the sign.
        """
        carries = self.carries
        for k in carries:
            here = first.add(self.space.constant(k))
            if k == carries.start:
                yield here.nonneg_set().intersect(self.last.domain())
            else:
                yield here.zero_set().intersect(self.last.ge_set(self._multiple(k)))

    def zero_set(self) -> Set:
        """Return the set where the number is 0."""
        own = self._whole()
        return own._pieces(
            lambda x: x.zero_set(),
            lambda first: _union(
                first.add(own.space.constant(k)).zero_set().intersect(own.last.eq_set(own._multiple(k)))
                for k in own.carries
            ),
        )

    def pos_set(self) -> Set:
        """Return the set where the number is above 0."""
        return self.nonneg_set().subtract(self.zero_set())

    def ge_set(self, other: Number) -> Set:
        """Return the set where the number is at least the other number."""
        return self.sub(other).nonneg_set()

    def gt_set(self, other: Number) -> Set:
        """Return the set where the number is above the other number."""
        return self.sub(other).pos_set()

    def le_set(self, other: Number) -> Set:
        """Return the set where the number is at most the other number."""
        return other.ge_set(self)

    def lt_set(self, other: Number) -> Set:
        """Return the set where the number is below the other number."""
        return other.gt_set(self)

    def eq_set(self, other: Number) -> Set:
        """Return the set where two numbers are equal."""
        return self.sub(other).zero_set()

    def ne_set(self, other: Number) -> Set:
        """Return the set where two numbers differ."""
        return self.eq_set(other).complement()

    # Quotients

    @property
    def small(self) -> bool:
        """True if the first digit is 0 everywhere."""
        return constant(self.first) == 0

    def multiple_of_p(self) -> int | None:
        """Return c if the number is c * p everywhere and c is a whole number, else None."""
        of = constant(self.first)
        return int(of) if of is not None and of.denominator == 1 and constant(self.last) == 0 else None

    def whole_number(self) -> int | None:
        """Return the number if it is constant and whole, else None."""
        of = constant(self.last) if self.small else None
        return int(of) if of is not None and of.denominator == 1 else None

    def plain(self, value: PwAff, bounds: Bounds = None) -> Number:
        """Return a number with an expression as its last digit."""
        return self._made(self.space.constant(0), value, bounds)

    def divided(self, by: Number) -> tuple[Number, Number, list[PwAff]] | None:
        """Return the quotient, the remainder, and the quotients by numbers that occur in both; None if the divisor is
        not supported.
        """
        count, turns = by.whole_number(), by.multiple_of_p()
        if count is not None and count > 0:
            return self._by_number(count)
        return self._by_multiple(turns) if turns is not None and turns > 0 else None

    def _by_number(self, count: int) -> tuple[Number, Number, list[PwAff]]:
        by = self.space.value(count)
        turns = self.first.scale_down_val(by).floor()
        left = self.first.sub(turns.scale_val(by))
        last = self.last if self.small else self.last.add(_stepped(self, left, count))
        inner = last.scale_down_val(by).floor()
        bounds = self.bounds and _times(_sum(self.bounds, (Fraction(0), Fraction(count - 1))), Fraction(1, count))
        quotient = self._made(turns, inner, bounds and (bounds[0].__floor__() + Fraction(0), bounds[1]))
        rest = self.plain(last.sub(inner.scale_val(by)), (Fraction(0), Fraction(count)))
        return quotient, rest, [inner] if self.small else [turns, inner]

    def _by_multiple(self, turns: int) -> tuple[Number, Number, list[PwAff]]:
        """Return the quotient and the remainder of a division by turns * p."""
        first, last = self.normal()
        by = self.space.value(turns)
        quotient = first.scale_down_val(by).floor() if turns > 1 else first
        rest = last
        if turns > 1:
            rest = last.add(_stepped(self, first.sub(quotient.scale_val(by)), turns))
        found = [] if self.carries == range(1) else [self.carry()]
        return self.plain(quotient), self.plain(rest, (Fraction(0), Fraction(turns))), [*found, quotient]


def _stepped(of: Number, digit: PwAff, below: int) -> PwAff:
    """Return ``digit * p`` for a digit from 0 to below - 1, by cases."""
    total, p = of.space.raw("p").scale_val(of.space.value(0)), of.space.raw("p")
    for k in range(1, below):
        total = total.add(case(digit.ge_set(of.space.constant(k)), p, of.space.constant(0)))
    return total


def choose(condition: Set, yes: Number, no: Number) -> Number:
    """Return a number with two cases: `yes` where the condition holds, `no` elsewhere."""
    return yes.intersect_domain(condition).union_add(no.intersect_domain(condition.complement()))


def _sum(first: tuple[Fraction, Fraction], second: tuple[Fraction, Fraction]) -> tuple[Fraction, Fraction]:
    return first[0] + second[0], first[1] + second[1]


def _times(bounds: tuple[Fraction, Fraction], factor: Fraction) -> tuple[Fraction, Fraction]:
    """Return the bounds of a multiple. The upper bound is exclusive, as is the lower bound of a negative multiple."""
    low, high = sorted(x * factor for x in bounds)
    return low, high if factor > 0 else high + 1


def _union(sets: Iterator[Set]) -> Set:
    return reduce(lambda one, other: one.union(other), sets)
