"""Judges the claims of one file for many schedules at once: an expression is evaluated over columns of their values.

    claim peak(r) == min(p - r, m)      a lane for each rank of each schedule     r  0 1 2 3 0 1     p  4 4 4 4 2 2
    claim idle == (p - 1) * tF          a lane for each schedule                  p  4 2

A number is a quotient of two integers with bounds (`language.lanes`), so no value is rounded. A schedule with a false
claim is left to `language.claims`, which explains it. All schedules are left to it if columns cannot express a claim:
if a number might exceed 62 bits, if a divisor might be 0, or if the claim calls a function defined in the file.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from pipesched.examine import Examination
from pipesched.language import ast
from pipesched.language.claims import A_RELEASE, COSTS, FRACTION, Claim, Verdict
from pipesched.language.execution import Names
from pipesched.language.lanes import Unsuited, Values, arithmetic, chosen, division, one
from pipesched.language.translate import CALL, OPERATORS
from pipesched.model.columns import Bools, Ints
from pipesched.model.costs import Costs
from pipesched.support.record import Record

_ONE, _NONE = one(1), one(0)


class Number(Record):
    """A number for each lane: the quotient of two integers, of which the second is positive."""

    above: Values
    below: Values = _ONE

    def __getitem__(self, index: Ints) -> Number:
        of = (Values(x.of[index], x.least, x.most) if x.varies else x for x in (self.above, self.below))
        return Number(*of)

    @property
    def whole(self) -> Values:
        """The numbers as integers; raise Unsuited if they have denominators."""
        if self.below is not _ONE:
            raise Unsuited
        return self.above


Term: TypeAlias = Number | Values  # a number, or a boolean


def column(values: Sequence[int] | Ints) -> Values:
    """Return integers with their bounds; raise Unsuited if they exceed 64 bits or are not integers."""
    try:
        of = np.asarray(values)
    except (OverflowError, ValueError):
        raise Unsuited from None
    if of.dtype != np.int64 or not len(of):
        raise Unsuited
    least, most = int(of.min()), int(of.max())
    return one(least) if least == most else Values(of, least, most)


def fractions(values: Sequence[Fraction]) -> Number:
    """Return exact numbers as a column."""
    below = column([x.denominator for x in values])
    return Number(column([x.numerator for x in values]), _ONE if below.most == 1 else below)


def _times(a: Values, b: Values) -> Values:
    return a if b is _ONE else b if a is _ONE else arithmetic(operator.mul, a, b)


def _crossed(a: Number, b: Number) -> tuple[Values, Values]:
    """Return the numerators of two numbers over a common denominator."""
    same = a.below is b.below
    return (a.above, b.above) if same else (_times(a.above, b.below), _times(b.above, a.below))


def _below(a: Number, b: Number) -> Values:
    """Return the common denominator of two numbers, which belongs to the numerators that `_crossed` returns."""
    return a.below if a.below is b.below else _times(a.below, b.below)


def _sum(by: Callable[[Any, Any], Any], a: Number, b: Number) -> Number:
    """Return a sum or a difference."""
    return Number(arithmetic(by, *_crossed(a, b)), _below(a, b))


def _quotient(a: Number, b: Number) -> Number:
    if np.any(b.above.of <= 0):
        raise Unsuited
    return Number(_times(a.above, b.below), _times(a.below, Values(b.above.of, max(b.above.least, 1), b.above.most)))


class Facts(Record):
    """The times and peaks of schedules. ranks: the first rank of each schedule, then the number of ranks. makespans:
    for each schedule, in ticks of 1 / scale. spans, work: for each rank, in the same ticks. peaks: for each rank, in
    multiples of its schedule's entry in `units`.
    """

    ranks: Ints
    scale: int
    makespans: Ints
    spans: Ints
    work: Ints
    peaks: Ints
    units: Number

    def of(self, schedules: Sequence[int]) -> Facts:
        """Return the facts of the schedules at these indices."""
        at = np.concatenate([np.arange(*self.ranks[x : x + 2]) for x in schedules])
        ranks = np.append(0, np.diff(self.ranks)[schedules].cumsum())
        spans, work, peaks = (x[at] for x in (self.spans, self.work, self.peaks))
        makespans, units = self.makespans[schedules], self.units[np.array(schedules)]
        return Facts(ranks, self.scale, makespans, spans, work, peaks=peaks, units=units)

    @cached_property
    def schedule(self) -> Ints:
        """The schedule of each rank."""
        return np.repeat(np.arange(len(self.makespans)), np.diff(self.ranks))

    def by_rank(self, name: str) -> tuple[Ints, Number] | None:
        """Return a fact by rank: an integer for each rank, and for each schedule the factor of these integers."""
        match name:
            case "peak":
                return self.peaks, self.units
            case "work":
                known = self.work
            case "idle":
                known = self.makespans[self.schedule] - self.work
            case "span_idle":
                known = self.spans - self.work
            case "span":
                known = self.spans
            case _:
                return None
        return known, Number(_ONE, _ONE if self.scale == 1 else one(self.scale))

    def value(self, name: str) -> Number:
        """Return a fact for each schedule; if it is a fact by rank, its largest value over the ranks."""
        if found := self.by_rank(name):
            known, unit = found
            return Number(_times(column(np.maximum.reduceat(known, self.ranks[:-1])), unit.above), unit.below)
        if name == "makespan":
            return Number(column(self.makespans), _ONE if self.scale == 1 else one(self.scale))
        if name not in ("bubble", "span_bubble"):
            raise Unsuited
        length = self.value("span" if name == "span_bubble" else "makespan").above
        whole = Number(arithmetic(operator.mul, length, column(np.diff(self.ranks))))
        return _quotient(_sum(operator.sub, whole, Number(column(np.add.reduceat(self.work, self.ranks[:-1])))), whole)


class Cases(Record):
    """Schedules of one file: for each schedule, the values of the file's names, the costs and the facts."""

    names: Sequence[Names]
    costs: Sequence[Costs]
    facts: Facts

    @cached_property
    def _known(self) -> dict[str, Number]:
        return {}

    def value(self, name: str) -> Number:
        """Return the value of a name for each schedule."""
        if name not in self._known:
            self._known[name] = self._value(name)
        return self._known[name]

    def _value(self, name: str) -> Number:
        key = f"v_{name}"
        own = [names.values.get(key) for names in self.names]
        if any(x is not None for x in own):
            if not all(type(x) is int for x in own):
                raise Unsuited
            return Number(column(own))  # type: ignore[arg-type]
        if name not in COSTS:
            return self.facts.value(name)
        different = {id(costs): costs.scalar(COSTS[name]) for costs in self.costs}
        found = [different[id(costs)] for costs in self.costs]
        return fractions([x for x in found if x is not None])

    def may_have(self, claims: Sequence[Claim], operations: Sequence[int]) -> bool:
        """Return True if each cost in the claims is one number, and every budget suffices to judge the claims
        separately.
        """
        known, keys = {id(x): x for x in self.costs}.values(), {key for claim in claims for key in claim.costs}
        if any(costs.scalar(key) is None for costs in known for key in keys):
            return False
        steps = sum(FRACTION * CALL * len(claim.node.span.text) for claim in claims)
        sizes = zip(self.names, operations, np.diff(self.facts.ranks).tolist(), strict=True)
        return all(x.budget.left > A_RELEASE * count + len(x.values) + ranks * steps for x, count, ranks in sizes)

    def states(self, claim: Claim) -> Ints:
        """Return, by schedule, 1 if the claim is true, 0 if its condition is never true, -1 if the claim is false."""
        if claim.node.release is not None:
            raise Unsuited
        lanes = Lanes(self, claim.variables, self.facts.schedule if claim.variables else np.arange(len(self.names)))
        if claim.node.condition is not None:
            lanes = lanes.those(lanes.boolean(claim.node.condition))
        made = np.zeros(len(self.names), dtype=np.int64)
        made[lanes.schedule] = 1
        if len(lanes.schedule):
            made[lanes.schedule[~lanes.boolean(claim.node.claim)]] = -1
        return made


class Lanes(Record):
    """The cases in which a claim is evaluated. at: the indices of their ranks, None for all ranks."""

    of: Cases
    variables: tuple[str, ...]
    schedule: Ints
    at: Ints | None = None

    def those(self, holds: Bools) -> Lanes:
        """Return the cases in which a condition is true."""
        kept = np.flatnonzero(holds)
        at = kept if self.at is None else self.at[kept]
        return Lanes(self.of, self.variables, self.schedule[kept], at)

    def boolean(self, node: ast.Expression) -> Bools:
        """Return, for each case, whether an expression is true."""
        found = self.term(node)
        assert isinstance(found, Values)
        return np.broadcast_to(np.asarray(found.of, dtype=np.bool_), len(self.schedule))

    def number(self, node: ast.Expression) -> Number:
        """Return the value of an expression in each case."""
        found = self.term(node)
        assert isinstance(found, Number)
        return found

    def term(self, node: ast.Expression) -> Term:
        """Return the value of an expression, a number or a boolean."""
        match node:
            case ast.Number(value=value):
                return Number(one(value.numerator), _ONE if value.denominator == 1 else one(value.denominator))
            case ast.Boolean(value=value):
                return one(value)
            case ast.Name(id=name) if name in self.variables:
                return Number(self._ranks)
            case ast.Name(id=name):
                return self.of.value(name)[self.schedule]
            case ast.Call():
                return self._call(node.function.id, [self.number(x) for x in node.arguments])
            case ast.Unary(operator="-"):
                operand = self.number(node.operand)
                return _sum(operator.sub, Number(_NONE, operand.below), operand)
            case ast.Unary():
                return Values(~self.boolean(node.operand))
            case ast.Binary():
                return self._binary(node)
            case ast.Conditional():
                yes, no = self.number(node.yes), self.number(node.no)
                a, b = _crossed(yes, no)
                made = np.where(self.boolean(node.condition), a.of, b.of)
                return Number(Values(made, min(a.least, b.least), max(a.most, b.most)), _below(yes, no))
        raise Unsuited

    @property
    def _ranks(self) -> Values:
        at = np.arange(len(self.schedule)) if self.at is None else self.at
        return column(at - self.of.facts.ranks[self.schedule])

    def _binary(self, node: ast.Binary) -> Term:
        _, makes, by = OPERATORS[node.operator]
        a, b = self.term(node.left), self.term(node.right)
        if isinstance(a, Values) or isinstance(b, Values):
            return Values(by(self.boolean(node.left), self.boolean(node.right)))
        if makes == "boolean":
            return Values(by(*(x.of for x in _crossed(a, b))))
        match node.operator:
            case "+" | "-":
                return _sum(by, a, b)
            case "*":
                return Number(_times(a.above, b.above), _times(a.below, b.below))
            case "/":
                return _quotient(a, b)
        return Number(division(by, a.whole, b.whole))

    def _call(self, name: str, parts: Sequence[Number]) -> Number:
        facts = self.of.facts
        if any(names.get(name) is not None for names in self.of.names[:1]):
            return self._extreme(name, parts)
        if (found := facts.by_rank(name)) is None or name == "span":
            raise Unsuited
        rank, ranks = parts[0].whole, np.diff(facts.ranks)[self.schedule]
        if np.any(rank.of < 0) or np.any(rank.of >= ranks):
            raise Unsuited
        known, unit = found
        here = unit[self.schedule]
        return Number(_times(column(known[facts.ranks[self.schedule] + rank.of]), here.above), here.below)

    def _extreme(self, name: str, parts: Sequence[Number]) -> Number:
        """Return the smallest or the largest of several numbers, or the absolute value of a number."""
        if name == "abs":
            return self._extreme("max", [parts[0], _sum(operator.sub, Number(_NONE, parts[0].below), parts[0])])
        by = {"min": (min, np.minimum), "max": (max, np.maximum)}.get(name)
        if by is None:
            raise Unsuited
        made = parts[0]
        for part in parts[1:]:
            made = Number(chosen(*by, _crossed(made, part)), _below(made, part))
        return made


def judge(made: Sequence[Examination], facts: Facts) -> None:
    """Store the verdicts on the claims of the common file in each examination, unless this takes separate runs."""
    units = [unit for one in made if (unit := one.loaded.unit) is not None]
    cases, claims = Cases([x.names for x in units], [x.analysis.costs for x in made], facts), units[0].checked.claims
    if not claims or not cases.may_have(claims, [len(x.schedule) for x in units]):
        return
    try:
        states = zip(*(cases.states(claim).tolist() for claim in claims), strict=True)
    except Unsuited:
        return
    known = dict[tuple[int, ...], list[Verdict]]()
    for examined, state in zip(made, states, strict=True):
        if state not in known:
            known[state] = [_VERDICT[holds](claim) for claim, holds in zip(claims, state, strict=True)]
        if -1 not in state:
            examined.__dict__["claims"] = known[state]


_VERDICT: Sequence[Callable[[Claim], Verdict]] = (
    lambda claim: Verdict(claim, None, "its condition does not hold at this size"),
    lambda claim: Verdict(claim, True),
    lambda claim: Verdict(claim, False),
)
"""The verdict on a claim by its state."""
