"""Checks the claims of a file exactly, at the requested size.

    claim peak(r) == min(p - r, m)                       the rank variable: for every rank
    claim idle == (p - 1) * (tF + tB) when tC == 0       without a rank: the largest over ranks
    claim bubble == (p - 1) / (m + p - 1) when tC == 0   idle time of all ranks over p x makespan

A claim is not applicable if its condition is false, or if it names a cost that differs between stages or microbatches:
it makes no statement at this size, and has not failed.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, cast

from pipesched.diagnostics import Code, Diagnostic, Label
from pipesched.extension import ClaimName, rows
from pipesched.language import ast
from pipesched.language.execution import Halt, Names, report
from pipesched.language.scope import BUILTINS, Binding, Kind, Scope
from pipesched.language.translate import Expressions, function, keep, paid
from pipesched.model.numbers import interval
from pipesched.model.ops import ADDED, LETTERS
from pipesched.model.release import AT_W, Release
from pipesched.support.record import Record

if TYPE_CHECKING:
    from pipesched.schedule_analysis import Analysis

COSTS = {f"t{key}": key for key in (*LETTERS, "C", "FB", "M", "K")}
PER_RANK = ("work", "idle", "span_idle", "peak", "host")
VALUES = ("makespan", "span")
FRACTION, A_RELEASE = 8, 3  # steps for a part of an expression in fractions, and for an operation's memory
SHARES = ("bubble", "span_bubble")
SOFT = (*SHARES, "tK", *(f"t{op.name}" for op in ADDED), "host")
"""The names that a file may redefine; the definition in the file then takes precedence."""
CLAIM_NAMES = frozenset((*COSTS, *PER_RANK, *VALUES)) - frozenset(SOFT)
_LISTED = 20  # most names of a file in a finding


class Claim(Record):
    """A compiled claim, with the names, the rank variables and the costs that it uses."""

    node: ast.Claim
    names: frozenset[str]
    variables: tuple[str, ...]
    costs: frozenset[str]

    @cached_property
    def text(self) -> str:
        return _text(self.node).removeprefix("claim ")


class Verdict(Record):
    """The verdict on a claim. holds: None if it is not applicable. detail: why it is not applicable, or by how much it
    fails. error: why it has no value.
    """

    claim: Claim
    holds: bool | None
    detail: str = ""
    error: Diagnostic | None = None


def scope_of_claims(scope: Scope, rank_variables: tuple[str, ...]) -> Scope:
    """Return the scope of claims: the file's names, and names that only claims may use."""
    own = [name for name in scope.names if name not in BUILTINS]
    known = {name: Binding() for name in (*COSTS, *VALUES, *SHARES)}
    known |= {name: Binding(arity=(1, 1), bare=True) for name in PER_RANK}
    soft = {name: known.pop(name) for name in SOFT}
    soft |= {row.name: Binding(arity=(1, 1) if row.by_rank else None, bare=row.by_rank) for row in rows(ClaimName)}
    known |= {name: Binding() for name in rank_variables}
    more = ["..."] if len(own) > _LISTED else []
    ours = (f"{row.name}(r)" if row.by_rank else row.name for row in rows(ClaimName))
    there = (*VALUES, *SHARES, *(f"{name}(r)" for name in PER_RANK), *ours, *COSTS, *own[:_LISTED], *more)
    names = ChainMap(known, *scope.names.maps, soft)
    return Scope(names, scope.diagnostics, scope.code, there=f"a claim may use {', '.join(there)}")


def compile_claim(node: ast.Claim, scope: Scope, rank_variables: tuple[str, ...]) -> Claim:
    """Compile a claim; its errors are reported to the scope."""
    used = ast.names_in(node.claim) | (ast.names_in(node.condition) if node.condition else frozenset())
    variables = tuple(x for x in rank_variables if x in used)

    def compile_part(part: ast.Expression, want: Kind = "unknown") -> None:
        term = Expressions(exact=True).term(part, scope, want)
        keep(part, function(variables, paid(part, replace(term, cost=FRACTION * term.cost))), scope)

    compile_part(node.claim, "boolean")
    for side in _sides(node) if not scope.diagnostics else ():
        compile_part(side)
    if node.condition is not None:
        compile_part(node.condition, "boolean")
    costs = frozenset(COSTS[x] for x in used if x in COSTS and scope.names[x].span is None)  # no own names
    return Claim(node, used, variables, costs)


def _sides(node: ast.Claim) -> tuple[ast.Expression, ...]:
    """Return both sides of a claim's comparison; their values show by how much it fails."""
    return (node.claim.left, node.claim.right) if isinstance(node.claim, ast.Binary) else ()


def _text(node: ast.Node) -> str:
    return " ".join(re.sub(r"#.*", "", node.span.text).split())


def judge_all(claims: Sequence[Claim], made: Analysis, names: Names) -> list[Verdict]:
    """Return the verdict on every claim. The facts for each release rule are derived and charged only once.

    A claim that divides by zero (PS206), overflows (PS219), costs too much (PS211) or names a rank that does not exist
    (PS221) counts as an error and as not applicable.
    """
    known: dict[str | None, Names] = {}
    verdicts = []
    used = frozenset[str]().union(*(claim.names for claim in claims))
    for claim in claims:
        rule = claim.node.release
        try:
            if rule not in known:
                names.budget.pay(A_RELEASE * len(made.schedule) + len(names.values))
                release = AT_W if rule is None else Release.parse(rule)
                known[rule] = Names(names.budget, names.code, {**_environment(made, release, used), **names.values})
            verdicts.append(_judge(claim, made, known[rule]))
        except (ZeroDivisionError, Halt) as error:
            found = report(error, claim.node.span.source).diagnostics[0]
            if found.where is None:  # not raised in the claim's own code
                found = replace(found, labels=(Label(claim.node.span, found.labels[0].message),))
            verdicts.append(Verdict(claim, None, found.message, found))
    return verdicts


def _judge(claim: Claim, made: Analysis, known: Names) -> Verdict:
    """Evaluate a claim for every rank that it covers."""
    if spread := [key for key in claim.costs if made.costs.scalar(key) is None]:
        return Verdict(claim, None, f"t{min(spread)} differs from {made.costs.differing(min(spread))}")
    if unknown := [name for name in claim.names if known.values.get(f"v_{name}", name) is None]:
        return Verdict(claim, None, f"`{min(unknown)}` cannot be determined at this size")
    cases = [(r,) * len(claim.variables) for r in range(made.schedule.ranks)] if claim.variables else [()]
    holds = known.function(claim.node.claim)
    if claim.node.condition is not None:
        condition = known.function(claim.node.condition)
        cases = [case for case in cases if condition(*case)]
    for case in cases:
        if not holds(*case):
            return Verdict(claim, False, _by_how_much(claim, known, case))
    return Verdict(claim, True) if cases else Verdict(claim, None, "the condition does not hold at this size")


def _by_how_much(claim: Claim, known: Names, case: tuple[int, ...]) -> str:
    where = ", ".join(f"{name} = {value}" for name, value in zip(claim.variables, case, strict=True))
    sides = [(_text(side), str(known.function(side)(*case))) for side in _sides(claim.node)]
    found = ", ".join(f"{text} is {value}" for text, value in sides if text != value)
    return ": ".join(filter(None, [where, found]))


def _environment(made: Analysis, release: Release, used: frozenset[str]) -> dict[str, object]:
    """Return the values of the names that claims use."""
    spent, known = made.idle, dict[str, object]()
    assert spent is not None
    for name in used.intersection(PER_RANK):
        row = made.peak(release) if name == "peak" else getattr(made.memory if name == "host" else spent, name)
        whole = [_whole(x) for x in row or (0,) * made.schedule.ranks]
        known |= {f"v_{name}": _row(whole), f"b_{name}": max(whole, default=0)}
    for row in (row for row in rows(ClaimName) if row.name in used):
        value = cast("Sequence[Fraction | int] | Fraction | None", row.value.load()(made))
        known[f"v_{row.name}"] = _row(value) if isinstance(value, Sequence) else value
        known |= {f"b_{row.name}": max(value, default=0)} if isinstance(value, Sequence) else {}
    values = {name: made.costs.scalar(COSTS[name]) for name in used.intersection(COSTS)}
    values |= {name: getattr(spent, name) for name in used.intersection((*VALUES, *SHARES))}
    return known | {f"v_{name}": None if value is None else _whole(value) for name, value in values.items()}


def _whole(value: Fraction | int) -> Fraction | int:
    """Convert an integral fraction to an integer, which is ten times as fast."""
    return value.numerator if value.denominator == 1 else value


def _row(row: Sequence[Fraction | int]) -> Callable[[int | Fraction], Fraction | int]:
    def of_rank(rank: int | Fraction) -> Fraction | int:
        if rank.denominator != 1 or not 0 <= rank < len(row):
            message = f"rank {rank} does not exist; ranks are {interval(0, len(row))}"
            raise Halt(Code.CLAIM, message, "names this rank")
        return row[int(rank)]

    return of_rank
