"""A second opinion on inclusions: Z3 searches for a point of the left side that is not in the right side.

The conditions of the left side's parts are asserted, and each quotient in them is a number q with d q <= x < d q + d.
The conditions of the right side are negated; its quotients are known numbers, so there are no quantifiers. All
questions are linear integer arithmetic. An inclusion that Z3 does not decide within its limit of steps is reported as
open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from math import prod
from typing import Any, TypeAlias

from pipesched.diagnostics import Code, fail
from pipesched.prover.codes import ProverCode
from pipesched.prover.evidence import Points, Shown
from pipesched.prover.presburger import Affine, PwAff, Set, UnionSet, coefficients, isl, parts

STEPS = 40_000_000  # of Z3, for one part of an inclusion; some ten seconds
IN_ALL = 30 * STEPS  # for all inclusions together; further inclusions are open
NAMED = 5  # open inclusions that are listed
CASES = 200  # of four factors together
Term: TypeAlias = Any


@dataclass(frozen=True)
class SecondOpinion:
    """The answers of Z3 about inclusions. agreed: the number of inclusions that Z3 confirms. open: the undecided
    inclusions.
    """

    agreed: int
    open: tuple[str, ...]

    def __str__(self) -> str:
        if not self.open:
            return "second opinion: Z3 agrees on every inclusion"
        many = f"{self.agreed} of {self.agreed + len(self.open)}"
        return f"second opinion: Z3 agrees on {many}; undecided within its limit of steps: {_listed(self.open)}"


def judged(shown: Sequence[Shown]) -> SecondOpinion:
    """Return Z3's answers on inclusions that isl found to hold.

    Raises:
        PipeschedError: PS721: Z3 refutes a statement; PS820: Z3 is not installed.
    """
    try:
        z3 = import_module("z3")
    except ImportError:
        message = "a second opinion needs Z3, which is not installed"
        raise fail(Code.NEEDS, message, help="pip install 'pipesched[optimize]'") from None
    left = _Steps(z3)
    answers = {each: _Question(z3, left).answer(each) for each in shown}
    false, open = (tuple(x.what for x, holds in answers.items() if holds is found) for found in (False, None))
    if false:
        message = f"Z3 contradicts isl: {_listed(false)}"
        raise fail(ProverCode.NOT_IMPLIED, message, help="isl or Z3 is wrong; please report the certificate")
    return SecondOpinion(len(shown) - len(open), open)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return "; ".join(names[:NAMED]) + more


class _Steps:
    """Z3's remaining step budget, shared by all inclusion checks."""

    def __init__(self, z3: Term) -> None:
        self.z3, self.left = z3, IN_ALL

    def check(self, solver: Term) -> Term:
        """Return a solver's answer within the remaining steps; Z3 counts steps from its start."""
        if self.left <= 0:
            return self.z3.unknown
        before = self._spent(self.z3.Solver())
        solver.set("rlimit", min(STEPS, self.left))
        found = solver.check()
        self.left -= max(self._spent(solver) - before, 1)
        return found

    @staticmethod
    def _spent(solver: Term) -> int:
        counted = solver.statistics()
        return int(counted.get_key_value("rlimit count")) if "rlimit count" in [*counted.keys()] else 0


class _Question:
    """An inclusion, expressed in Z3. steps: the remaining steps."""

    def __init__(self, z3: Term, steps: _Steps | None = None) -> None:
        self.z3, self.quotients, self.steps = z3, 0, steps or _Steps(z3)

    def answer(self, shown: Shown) -> bool | None:
        """Return True if Z3 confirms the inclusion, None if Z3 does not decide it."""
        return self._equal(shown.factors) if shown.factors else self.holds(shown.left, shown.right)

    def holds(self, left: Points, right: Points) -> bool | None:
        """Return True if Z3 proves that left is a subset of right, False if it is not, None if Z3 cannot decide."""
        other = _union(right)
        verdicts = [self._within(part, other.extract_set(part.get_space())) for part in parts(_union(left))]
        return False if False in verdicts else None if None in verdicts else True

    def _within(self, left: Set, right: Set) -> bool | None:
        outside: list[Term] = []
        for part in right.compute_divs().get_basic_sets():
            conditions, quotients = self._conditions(part)
            outside += [*quotients, self.z3.Not(self.z3.And(*conditions))]
        for part in left.compute_divs().get_basic_sets():
            conditions, quotients = self._conditions(part)
            solver = self.z3.SolverFor("QF_LIA")
            solver.add(*conditions, *quotients, *outside)
            found = self.steps.check(solver)
            if found != self.z3.unsat:
                return False if found == self.z3.sat else None
        return True

    def _equal(self, factors: Sequence[Sequence[PwAff]]) -> bool | None:
        """Return True if ``a b`` equals ``c d`` at every point; all combinations of cases are tried."""
        cases = [[*self._number(of)] for of in factors]
        if prod(map(len, cases)) > CASES:
            return None
        for chosen in product(*cases):
            a, b, c, d = (value for _, value in chosen)
            solver = self.z3.Solver()
            solver.add(*(x for conditions, _ in chosen for x in conditions), a * b != c * d)
            found = self.steps.check(solver)
            if found != self.z3.unsat:
                return False if found == self.z3.sat else None
        return True

    def _number(self, digits: Sequence[PwAff]) -> Iterator[tuple[list[Term], Term]]:
        """Yield the cases of a number with one digit, or with two in base p."""
        for chosen in product(*map(self._cases, digits)):
            conditions = [x for said, _ in chosen for x in said]
            *high, low = (value for _, value in chosen)
            yield conditions, (self.z3.ToReal(self.z3.Int("p")) * high[0] + low if high else low)

    def _cases(self, of: PwAff) -> Iterator[tuple[list[Term], Term]]:
        """Yield the cases of an expression: their conditions, and the value."""
        for where, value in of.get_pieces():
            wide = int(value.get_denominator_val().to_python())
            for part in where.compute_divs().get_basic_sets():
                conditions, quotients = self._conditions(part)
                columns, said = self._columns(value, part)
                total = self.z3.ToReal(self._sum(value, columns, wide)) / wide
                yield [*conditions, *quotients, *said], total

    def _conditions(self, part: Affine) -> tuple[list[Term], list[Term]]:
        """Return the conditions of a part, and the conditions that define its quotients."""
        columns, said = self._columns(part, part)
        made = []
        for each in part.get_constraints():
            total = self._sum(each, columns, 1)
            made.append(total == 0 if each.is_equality() else total >= 0)
        return [self.z3.BoolVal(True), *made], said

    def _columns(self, of: Affine, within: Affine) -> tuple[list[Term], list[Term]]:
        """Return the terms of a part or an expression, and the conditions that define its quotients."""
        kind = isl().dim_type
        names = [within.get_dim_name(kind.param, k) for k in range(within.dim(kind.param))]
        columns = [self.z3.Int(name) for name in (*names, *(f"x{k}" for k in range(within.dim(kind.set))))]
        said: list[Term] = []
        for k in range(of.dim(kind.div)):
            div = of.get_div(k)
            wide = int(div.get_denominator_val().to_python())
            total = self._sum(div, columns, wide)
            self.quotients += 1
            own = self.z3.Int(f"q{self.quotients}")
            said += [wide * own <= total, total < wide * own + wide]
            columns.append(own)
        return columns, said

    def _sum(self, of: Affine, columns: Sequence[Term], scale: int) -> Term:
        """Return the weighted sum in a condition or an expression, multiplied by a factor that makes it an integer."""
        one, *weights = (int(x * scale) for x in coefficients(of))
        total = self.z3.IntVal(one)
        for weight, term in zip(weights, columns, strict=False):
            if weight:
                total = total + weight * term
        return total


def _union(of: Points) -> UnionSet:
    """Return points of any kind as a union of sets; a map is the set of its pairs."""
    if hasattr(of, "is_params") and of.is_params():
        of = of.from_params()
    if isinstance(of, isl().Map):
        of = isl().UnionMap.from_map(of)
    if isinstance(of, isl().UnionMap):
        return of.wrap()
    return isl().UnionSet.from_set(of) if isinstance(of, isl().Set) else of
