"""Claims of a file about itself, checked exactly at the size that was asked.

    claim peak(r) == min(p - r, m)                       the rank variable: for every rank
    claim idle == (p - 1) * (tF + tB) when tC == 0       without a rank: the largest over ranks
    claim bubble == (p - 1) / (m + p - 1) when tC == 0   idle time of all ranks over p x makespan

A claim whose condition is false, or that names a cost which differs from stage to stage or from microbatch to
microbatch, is not applicable: it says nothing here, and has not failed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from types import CodeType

from pipesched.diagnostics import Code, Diagnostic, Label
from pipesched.language import ast
from pipesched.language.execution import Halt, Names, report
from pipesched.language.scope import Binding, Kind, Scope
from pipesched.language.translate import Expressions, compiled, lambda_of
from pipesched.model.costs import Costs
from pipesched.model.ops import LETTERS
from pipesched.model.release import AT_W, Release

COSTS = {f"t{key}": key for key in (*LETTERS, "C", "FB", "M", "K")}
PER_RANK = ("work", "idle", "span_idle", "peak", "host")
VALUES = ("makespan", "span")
FRACTION, A_RELEASE = 8, 3  # costs of a part of an expression in fractions, and of an operation's memory
SHARES = ("bubble", "span_bubble")
SOFT = (*SHARES, "tR", "tK", "tO", "tL", "host")
"""Names that a file may give another meaning, which then counts."""
CLAIM_NAMES = frozenset((*COSTS, *PER_RANK, *VALUES)) - frozenset(SOFT)
_LISTED = 20  # names of a file that a finding lists


@dataclass(frozen=True)
class Facts:
    """The figures that claims speak about. Time in the user's unit; per rank, one entry a rank."""

    makespan: Fraction
    span: Fraction
    work: tuple[Fraction, ...]
    idle: tuple[Fraction, ...]
    span_idle: tuple[Fraction, ...]
    bubble: Fraction
    span_bubble: Fraction
    peak: Callable[[Release], tuple[Fraction, ...]]
    host: tuple[Fraction, ...]
    costs: Costs


@dataclass(frozen=True)
class Claim:
    """A claim, compiled. `sides` are those of its comparison, which show by how much it fails."""

    node: ast.Claim
    text: str
    release: Release
    holds: CodeType
    condition: CodeType | None
    sides: tuple[tuple[str, CodeType], ...]
    variables: tuple[str, ...]
    costs: frozenset[str]


@dataclass(frozen=True)
class Verdict:
    """holds: True, False, or None for not applicable; detail: why, or by how much. error: it cannot be evaluated."""

    claim: Claim
    holds: bool | None
    detail: str = ""
    error: Diagnostic | None = None


def scope_of_claims(scope: Scope, rank_variables: tuple[str, ...]) -> Scope:
    """The file's names, and those that only claims know."""
    own = [name for block in scope.blocks[1:] for name in block]
    known = {name: Binding() for name in (*COSTS, *VALUES, *SHARES)}
    known |= {name: Binding(arity=(1, 1), bare=True) for name in PER_RANK}
    soft = {name: known.pop(name) for name in SOFT}
    known |= {name: Binding() for name in rank_variables}
    more = ["..."] if len(own) > _LISTED else []
    there = (*VALUES, *SHARES, *(f"{name}(r)" for name in PER_RANK), *COSTS, *own[:_LISTED], *more)
    return Scope([soft, *scope.blocks, known], scope.diagnostics, there=f"a claim knows {', '.join(there)}")


def compile_claim(node: ast.Claim, scope: Scope, rank_variables: tuple[str, ...]) -> Claim:
    """Translate a claim; what is wrong with it is reported to the scope."""
    used = ast.names_in(node.claim) | (ast.names_in(node.condition) if node.condition else frozenset())
    variables = tuple(x for x in rank_variables if x in used)
    exact = Expressions(exact=True)

    def code(part: ast.Expression, want: Kind = "unknown") -> CodeType:
        names = [f"v_{x}" for x in variables]
        term = exact.term(part, scope, want)
        return compiled(lambda_of(names, replace(term, cost=FRACTION * term.cost), part), scope)

    sides: list[tuple[str, CodeType]] = []
    holds = code(node.claim, "boolean")
    if isinstance(node.claim, ast.Binary) and not scope.diagnostics:
        sides = [(_text(side), code(side)) for side in (node.claim.left, node.claim.right)]
    condition = code(node.condition, "boolean") if node.condition else None
    release = AT_W if node.release is None else Release.parse(node.release)
    own = {name for block in scope.blocks[1:-1] for name in block}
    costs = frozenset(COSTS[x] for x in used if x in COSTS and x not in own)
    text = re.sub(r"^claim ", "", _text(node))
    return Claim(node, text, release, holds, condition, sides=tuple(sides), variables=variables, costs=costs)


def _text(node: ast.Node) -> str:
    return " ".join(re.sub(r"#.*", "", node.span.text).split())


def judge_all(claims: Sequence[Claim], facts: Facts, names: Names, operations: int) -> list[Verdict]:
    """The verdict on every claim. What is known under a release rule is found once, and paid for."""
    known: dict[Release, Names] = {}
    verdicts = []
    for claim in claims:
        try:
            if claim.release not in known:
                names.budget.pay(A_RELEASE * operations + len(names.code))
                known[claim.release] = Names(names.budget)
                known[claim.release].code = {**_environment(facts, claim.release), **names.code}
        except Halt as error:
            verdicts.append(_not_judged(claim, error))
            continue
        verdicts.append(judge(claim, facts, known[claim.release]))
    return verdicts


def _not_judged(claim: Claim, error: BaseException) -> Verdict:
    found = report(error, claim.node.span.source).diagnostics[0]
    if found.where is None:  # not raised in the claim's own code
        found = replace(found, labels=(Label(claim.node.span, found.labels[0].message),))
    return Verdict(claim, None, found.message, found)


def judge(claim: Claim, facts: Facts, known: Names) -> Verdict:
    """Evaluate a claim for every rank it speaks of. known: the values of all names in translated code.

    A claim that divides by zero (PS206), overflows (PS219), costs too much (PS211) or names no rank (PS221) is an error
    and not applicable.
    """
    spread = sorted(key for key in claim.costs if facts.costs.scalar(key) is None)
    if spread:
        return Verdict(claim, None, f"t{spread[0]} differs from {facts.costs.differing(spread[0])}")
    ranks = range(len(facts.work))
    cases = [(r,) * len(claim.variables) for r in ranks] if claim.variables else [()]
    try:
        holds = known.function(claim.holds)
        condition = None if claim.condition is None else known.function(claim.condition)
        applicable = [case for case in cases if condition is None or condition(*case)]
        for case in applicable:
            if not holds(*case):
                return Verdict(claim, False, _by_how_much(claim, known, case))
    except (ZeroDivisionError, Halt) as error:
        return _not_judged(claim, error)
    return Verdict(claim, True) if applicable else Verdict(claim, None, "its condition does not hold here")


def _by_how_much(claim: Claim, known: Names, case: tuple[int, ...]) -> str:
    where = ", ".join(f"{name} = {value}" for name, value in zip(claim.variables, case, strict=True))
    found = ", ".join(
        f"{text} is {value}" for text, code in claim.sides if text != (value := str(known.function(code)(*case)))
    )
    return ": ".join(filter(None, [where, found]))


def _environment(facts: Facts, release: Release) -> dict[str, object]:
    rows = {name: getattr(facts, name) for name in PER_RANK} | {"peak": facts.peak(release)}
    known: dict[str, object] = {f"v_{name}": _row(row) for name, row in rows.items()}
    known |= {f"b_{name}": max(row, default=Fraction(0)) for name, row in rows.items()}
    known |= {f"v_{name}": facts.costs.scalar(key) for name, key in COSTS.items()}
    return known | {f"v_{name}": getattr(facts, name) for name in (*VALUES, *SHARES)}


def _row(row: tuple[Fraction, ...]) -> Callable[[int | Fraction], Fraction]:
    def of_rank(rank: int | Fraction) -> Fraction:
        if rank.denominator != 1 or not 0 <= rank < len(row):
            raise Halt(Code.CLAIM, f"there is no rank {rank}; ranks are 0 .. {len(row)}", "asks for this rank")
        return row[int(rank)]

    return of_rank
