"""A question: one file, at one p or at every p. Each fact is proved when it is first requested."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from textwrap import shorten
from typing import TypeVar

from pipesched.language import ast
from pipesched.language.parser import parse
from pipesched.prover.digits import Uncarried
from pipesched.prover.evidence import Evidence
from pipesched.prover.facts import Facts
from pipesched.prover.flow import Flow, complete
from pipesched.prover.model import SIZES, Model
from pipesched.prover.presburger import Set, TooHard, bounded, isl, smallest
from pipesched.prover.relations import Relations, Unsettled
from pipesched.prover.replay import Costs, Replay
from pipesched.prover.sampling import Sample, Stuck, sizes
from pipesched.prover.scope import Divides, NotAffine, evaluate
from pipesched.prover.timeline import Timeline, Times, clock
from pipesched.prover.written import conditions
from pipesched.support.source import Source

Found = TypeVar("Found")
_WIDE = 150  # most characters of a quoted line
ROUNDS = ("m % p == 0", "m % p != 0 and m < 2 * p")  # rounds of p microbatches, and one round of another length
CASES, FEW = 24, 4  # most cases of m, and most that are only tried after the whole


def asked(file: ast.File, given: Mapping[str, int], evidence: Evidence | None = None) -> Question:
    """Return the question about a file, in base p if the file divides by p while p varies."""
    own = Evidence() if evidence is None else evidence
    question = Question(file, given, own)
    if question.model.varying == SIZES and question.divides:
        digits = Question(file, given, own, digits=True)
        return digits if digits.affine else question
    return question


@dataclass(eq=False)
class Question:
    """A file and the sizes that the question covers. given: fixed values of parameters; p and m vary unless they are
    given. digits: whether numbers are in base p. limits: the conditions that restrict the question to some of the
    file's sizes.
    """

    file: ast.File
    given: Mapping[str, int]
    evidence: Evidence = field(default_factory=Evidence)
    digits: bool = False
    limits: tuple[ast.Expression, ...] = ()
    _narrowed: dict[tuple[ast.Expression, ...], Question] = field(default_factory=dict)
    _timed: dict[tuple[tuple[str, int], ...], object] = field(default_factory=dict)

    @cached_property
    def model(self) -> Model:
        """The file's statements and placement."""
        return Model(self.file, self.given, self.digits, evidence=self.evidence)

    def settled(self, ask: Callable[[], Found]) -> Found:
        """Compute an answer within the budget.

        Raises:
            Unsettled: there is no answer within the budget.
        """
        try:
            with bounded(self.model.context):
                return ask()
        except Uncarried:
            raise Unsettled("the carries of a number in base p are unbounded") from None
        except TooHard:
            raise Unsettled("it takes more steps or memory than are given") from None
        except NotAffine as error:
            quoted = shorten(error.span.text, _WIDE, placeholder=" …")
            raise Unsettled(f"line {error.span.line}: `{quoted}`: {error.reason}") from None
        except isl().Error:
            raise Unsettled("isl cannot decide the question") from None
        except Stuck:
            raise Unsettled("the order does not run at a small size") from None

    @cached_property
    def affine(self) -> bool:
        """True if the file's sizes, placement and statements have a supported form."""
        try:
            return bool(self.settled(lambda: (self.model.sizes, self.model.statements)))
        except Unsettled:
            return False

    @cached_property
    def pieces(self) -> int:
        """The number of convex pieces of all statements; 0 if their form is not supported."""
        return sum(x.domain.n_basic_set() for x in self.model.statements) if self.affine else 0

    @cached_property
    def divides(self) -> bool:
        """True if the file's form is not supported because it divides by a value that varies."""
        try:
            with bounded(self.model.context):
                return not (self.model.sizes, self.model.statements)
        except (NotAffine, TooHard, isl().Error) as error:
            return isinstance(error, Divides)

    @cached_property
    def relations(self) -> Relations:
        """The relations that describe order and data flow."""
        found = sizes(self.model) if self.evidence.known is None else ()
        if self.evidence.known is None and not found:
            raise Unsettled("no size in the domain is small enough to guess from")
        return Relations(self.model, Sample(self.model, found))

    @cached_property
    def timeline(self) -> Timeline:
        """The timeline of start times."""
        return Timeline(self.relations, Flow(self.relations), Replay(self.relations.sample))

    @cached_property
    def facts(self) -> Facts:
        """The figures: peaks, work, makespan and spans."""
        return Facts(self.relations, self.timeline)

    @cached_property
    def cases(self) -> tuple[Question, ...]:
        """The question at one p, split into cases of m: whole rounds of p microbatches, one round, and the few sizes
        left. Empty if too many sizes are left, or if there is only one case.
        """
        if "p" not in self.given or self.model.varying != ("m",):
            return ()
        try:
            found = self.settled(self._cases)
        except Unsettled:
            return ()
        return found if len(found) > 1 else ()

    def _cases(self) -> tuple[Question, ...]:
        found, left, rounds = list[Question](), self.model.sizes, [*ROUNDS]
        while not left.is_empty() and len(found) < CASES:
            size = _condition(rounds.pop(0) if rounds else f"m == {smallest(isl().Set.from_params(left), 1)[0]}")
            own = self._where(size)
            if not own.is_empty():
                found.append(self.narrowed((size,)))
                left = left.subtract(own)
        return tuple(found) if left.is_empty() else ()

    def _where(self, condition: ast.Expression) -> Set:
        """Return the sizes at which a condition on sizes holds."""
        scope = self.model.sized(self.model.space_of(), None)
        return self.model.sizes.intersect(scope.holding(evaluate(condition, scope)).params())

    def covered(self) -> bool:
        """Return True if every size is in a case."""
        together = self.model.sizes.subtract(self.model.sizes)
        for case in self.cases:
            together = together.union(self._where(case.limits[-1]))
        return self.evidence.holds("every size is in a case of m", self.model.sizes, together)

    def statements(self) -> list[dict[str, object]]:
        """Return the operations of the file, each with the points at which it runs, as a JSON object; by cases if the
        points are not known for the whole question.
        """
        try:
            domains = self.settled(lambda: self.relations.domains)
        except Unsettled:
            return [{"case": case.evidence.where, **each} for case in self.cases for each in case.statements()]
        return [
            {
                "name": x.name,
                "letter": x.letter,
                "line": x.span.line,
                "place": ["loop" if number is None else number for number in x.place],
                "domain": conditions(domains[x.name], self.model.space),
            }
            for x in self.model.statements
        ]

    @cached_property
    def complete(self) -> str:
        """The letters of the kinds that every stage and microbatch runs exactly once."""
        if self.model.sizes.is_empty():
            raise Unsettled("the file's requirements hold at no size")
        return complete(self.relations)

    @cached_property
    def clock(self) -> str:
        """The proof that no operations wait for each other in a cycle."""
        known = self.complete
        assert known
        return clock(self.timeline)

    def narrowed(self, conditions: tuple[ast.Expression, ...]) -> Question:
        """Return the same question for fewer sizes."""
        if not conditions:
            return self
        if conditions not in self._narrowed:
            more = tuple(ast.Require(each.span, each, None) for each in conditions)
            fewer = replace(self.file, items=(*self.file.items, *more))
            own = self.evidence.under(" and ".join(" ".join(each.span.text.split()) for each in conditions))
            self._narrowed[conditions] = Question(fewer, self.given, own, self.digits, (*self.limits, *conditions))
        return self._narrowed[conditions]

    def times(self, generators: Sequence[Costs]) -> Times:
        """Return the start times for all costs between the generators; the result is cached, even a failure.

        Raises:
            Unsettled: the start times are not proved.
        """
        key = tuple(pair for costs in generators for pair in sorted(costs.items()))
        if key not in self._timed:
            try:
                assert self.clock
                self._timed[key] = self.timeline.prove(generators)
            except Unsettled as error:
                self._timed[key] = error
        found = self._timed[key]
        if isinstance(found, Unsettled):
            raise found
        assert isinstance(found, Times)
        return found


def _condition(text: str) -> ast.Expression:
    """Parse a condition on p and m that is written as in a file."""
    (found,) = (x for x in parse(Source("cases", f"schedule cases(p, m)\nrequire {text}\n")).items)
    assert isinstance(found, ast.Require)
    return found.condition
