"""The properties of a file at every size: each is proved, refuted at its smallest size, or not settled.

First, all p are tried together; properties that stay open are tried at p = 2, 3 and 4 separately. A question about one
p may be decided by cases of m, which together cover all of its sizes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, TypeAlias

from pipesched.diagnostics import Code, fail
from pipesched.formats.readers import checked, reader_of
from pipesched.language import ast
from pipesched.language.evaluate import require_parameters
from pipesched.model.numbers import Value
from pipesched.prover.claims import Fails, Proof
from pipesched.prover.cones import Cone
from pipesched.prover.forms import UNIT, parts
from pipesched.prover.model import SIZES
from pipesched.prover.presburger import Set, isl
from pipesched.prover.prove_report import Answer, Finding, Theorems
from pipesched.prover.question import FEW, Found, Question, asked
from pipesched.prover.refute import MOST, SOME, Small, interior
from pipesched.prover.relations import Unsettled
from pipesched.prover.scope import NotAffine
from pipesched.support.source import Source

ONE_BY_ONE = (2, 3, 4)
TIMES, COSTS_TRIED = tuple("FBIWOLC"), 16
MOST_PIECES = 100  # most statements at one p, unless a user requests this p
PROVED, REFUTED, OPEN = "proved", "refuted", "not settled"

Asks: TypeAlias = "Callable[[Question, Callable[[Question], Any]], list[Any]]"


def prove(source: Source, parameters: Mapping[str, Value]) -> Theorems:
    """Prove the properties of a file. parameters: the fixed values; p and m vary unless they are given.

    Raises:
        PipeschedError: the file is not a .ps file, or is wrong at every size; PS225: the order has only one size;
        PS820: islpy is not installed.
    """
    isl()
    if reader_of(source).name != "ps":
        raise fail(
            Code.USAGE,
            f"{source.name} is an order for a single size: proofs need a .ps file",
            help="`pipesched verify` checks it completely",
        )
    known = checked(source)
    file, sizes = known.file, [name for name in SIZES if name in known.parameters]
    require_parameters(known, {**dict.fromkeys(sizes, 1), **parameters})
    given = {name: value for name, value in parameters.items() if isinstance(value, int)}
    if lists := [name for name in parameters if name not in given]:
        help = "leave it out: everything that does not depend on the list is proved"
        raise fail(Code.LIST, f"`{lists[0]}` is a list, whose length is fixed, but a proof covers all sizes", help=help)
    question = asked(file, given)
    if not question.model.varying:
        both = f"{' and '.join(sizes)} {'are' if len(sizes) > 1 else 'is'} given"
        why = both if sizes else f"schedule {file.name.id} has neither p nor m"
        raise fail(
            Code.USAGE,
            f"{why}: the schedule has only one size here, but a proof covers all sizes",
            help="`pipesched verify` checks it completely" + ("; leave out --m" if "m" in sizes else ""),
        )
    return _Prover(source, file, question).theorems()


@dataclass(frozen=True, eq=False)
class _Prover:
    source: Source
    file: ast.File
    question: Question

    @cached_property
    def small(self) -> Small:
        return Small(self.source, self.question.given, self.question.model.varying)

    def theorems(self) -> Theorems:
        title = self.file.title or self.file.name.id
        if (wrong := self.small.wrong()) is not None:
            finding = Finding(0, "the order", REFUTED, counterexample=wrong)
            answers = [Answer(values(self.question), domain_of(self.question), (finding,), self.question)]
        else:
            answers = [self._answer(self.question)]
            open = {x.number for x in answers[0].findings if x.outcome == OPEN}
            if open and "p" in self.question.model.varying:
                answers += self._one_by_one(open)
        return Theorems(self.source, self.file.name.id, title, tuple(answers))

    def _one_by_one(self, open: set[int]) -> Iterator[Answer]:
        """Yield the answers for p = 2, 3 and 4 that prove an open property. open: the indices of the open
        properties.
        """
        for p in ONE_BY_ONE:
            if any(size["p"] == p for size in self.small.sizes):
                question = Question(self.file, {**self.question.given, "p": p})
                if question.pieces > MOST_PIECES:
                    continue
                made = self._answer(question, open)
                if any(finding.outcome == PROVED and finding.number in open for finding in made.findings):
                    yield made

    def _answer(self, question: Question, only: set[int] | None = None) -> Answer:
        """Return the answer to a question. only: the indices of the properties to decide."""
        return Answer(values(question), domain_of(question), tuple(self._findings(question, only)), question)

    def _findings(self, question: Question, only: set[int] | None) -> Iterator[Finding]:
        sound = True
        for number, (name, _) in enumerate(STRUCTURE):
            if sound:
                try:
                    yield ordered(number, question, self._in_cases(question))
                except Unsettled as error:
                    yield Finding(number, name, OPEN, f"{error}; {self._tried}")
                    sound = False
        for at, claim in enumerate(x for x in self.file.items if isinstance(x, ast.Claim)):
            number = at + len(STRUCTURE)
            if only is None or number in only:
                yield self._claim(number, at, claim, question, sound=sound)

    def _in_cases(self, question: Question) -> Asks:
        """Return the function that asks a question: as a whole, by cases of m, or as a whole and then by cases."""
        if question is not self.question:
            return whole
        return in_cases if len(question.cases) > FEW else whole_or_cases

    @cached_property
    def _tried(self) -> str:
        """Describe the sizes at which `verify` finds no error, as evidence where there is no proof."""
        sizes = self.small.judged()
        if not sizes:
            most = " ".join(f"{name}={MOST[name]}" for name in self.question.model.varying)
            return f"no size up to {most} is accepted by the file and small enough to try"
        most = " ".join(f"{name}={max(size[name] for size in sizes)}" for name in self.question.model.varying)
        return f"right at all {len(sizes)} sizes up to {most}"

    def _claim(self, number: int, at: int, claim: ast.Claim, question: Question, *, sound: bool) -> Finding:
        text = said(claim)
        why, failed = "the order is not proved", None
        if sound:
            try:
                return proved(question, number, claim, self._in_cases(question))
            except (Unsettled, NotAffine) as error:
                why, failed = str(error), error if isinstance(error, Fails) else None
        tried = self._priced(question, claim)
        counterexample = self.small.false(at, tried)
        if counterexample is None and failed is not None:
            priced = {name: value for name, value in failed.costs.items() if name not in ("M", UNIT)} or tried[0]
            counterexample = self.small.at(at, failed.size, priced)
        if counterexample is not None:
            return Finding(number, text, REFUTED, counterexample=counterexample)
        return Finding(number, text, OPEN, f"{why}; {self._tried}")

    def _priced(self, question: Question, claim: ast.Claim) -> list[Mapping[str, int]]:
        """Return the costs at which to try a claim, the file's own first; M = 1 for claims on activation counts."""
        try:
            proof = Proof(question, claim)
            own = (entry.name for item in self.file.items if isinstance(item, ast.Costs) for entry in item.entries)
            if proof.counted:
                return [{"M": 1} if "M" in own else {}]
            if proof.sized:
                return [{}, *SOME, *self._allowed(question, claim)]
            cones = proof.generators()
            return [{}, *filter(None, map(_real, [*interior(cones), *chain(*cones)]))]
        except (Unsettled, NotAffine):
            return [{}, *SOME, *self._allowed(question, claim)]

    @staticmethod
    def _allowed(question: Question, claim: ast.Claim) -> Sequence[Mapping[str, int]]:
        """Return costs that satisfy a claim's condition, for an order whose form is not supported."""
        try:
            found = question.settled(lambda: parts(claim.condition, question.model.names(question.model.space_of())))
        except Unsettled:
            return []
        cones = [Cone.of([*TIMES, UNIT], part.named).generators for part in found if part.forms]
        inner = (dict(next(interior([cone]))) for cone in cones)
        return [*filter(None, map(_real, [*inner, *chain(*cones)]))][:COSTS_TRIED]


def _real(costs: Mapping[str, int]) -> Mapping[str, int] | None:
    """Return costs as multiples of their unit; None if they have no unit or the multiples are not whole numbers."""
    unit = costs.get(UNIT, 1)
    found = {name: value for name, value in costs.items() if name != UNIT}
    if not unit or any(value % unit for value in found.values()):
        return None
    return {name: value // unit for name, value in found.items()}


def values(question: Question) -> dict[str, int]:
    """Return the parameters that have a fixed value."""
    own = {x.name.id: x.default.value for x in question.file.parameters if isinstance(x.default, ast.Number)}
    varying = question.model.varying
    fixed = {name: value for name, value in own.items() if isinstance(value, int) and name not in varying}
    return {**fixed, **question.given}


def domain_of(question: Question) -> str:
    """Describe the sizes of a question. A parameter whose default is a formula is stated as `name == formula`."""
    known = {*question.model.varying, *question.given, *values(question)}
    own = [x for x in question.file.parameters if x.default is not None and x.name.id not in known]
    also = [f"{x.name.id} == {x.default.span.text}" for x in own if x.default is not None]
    try:
        return _domain(question.settled(lambda: question.model.sizes), also)
    except Unsettled:
        return ""


_RULES = (
    (r"\((-?\w+)\) mod (\d+) = (\d+)", r"\1 % \2 == \3"),
    (r"\b(\w+) > (-?\d+)\b", lambda found: f"{found[1]} >= {int(found[2]) + 1}"),
    (r"(?<![<>=!]) = ", " == "),
    (r"-(\d+) \+ (\w+)", r"\2 - \1"),
    (r"\bh == 0\b", "m % p == 0"),
    (r"\bg >= 1\b", "m >= p"),
    (r"\bg >= (\d+)\b", r"m >= \1p"),
    (r"\bg\b", "m // p"),
    (r"\bh\b", "m % p"),
)


def _domain(sizes: Set, also: Sequence[str] = ()) -> str:
    """Describe a set of sizes. also: further conditions, as they are written in the file."""
    said = str(sizes.coalesce().remove_redundancies())
    inside = said[said.index("{") + 1 : said.rindex("}")].strip()
    conditions = inside.split(":", 1)[1].strip() if ":" in inside else ""
    for pattern, with_ in _RULES:
        conditions = re.sub(pattern, with_, conditions)
    if also and " or " in re.sub(r"\((?:[^()]|\([^()]*\))*\)", "", conditions):
        conditions = f"({conditions})"
    whole = " and ".join([*also, *filter(None, [conditions])])
    return "no size" if conditions == "false" else f"every size with {whole}" if whole else "every size"


def said(claim: ast.Claim) -> str:
    """Return a claim as one line of text."""
    return " ".join(claim.span.text.split()).removeprefix("claim ")


def whole(question: Question, ask: Callable[[Question], Found]) -> list[Found]:
    """Return a list with the answer to a whole question."""
    return [ask(question)]


def in_cases(question: Question, ask: Callable[[Question], Found]) -> list[Found]:
    """Return the answers to a question's cases.

    Raises:
        Unsettled: a case is not settled; the message names the case.
    """
    if not question.cases or not question.settled(question.covered):
        raise Unsettled("the sizes cannot be divided into cases of m")
    found = []
    for case in question.cases:
        try:
            found.append(ask(case))
        except Fails:
            raise
        except Unsettled as error:
            raise Unsettled(f"where {case.evidence.where}: {error}") from None
    return found


def whole_or_cases(question: Question, ask: Callable[[Question], Found]) -> list[Found]:
    """Return the answer to a question or, if it is not settled and has cases of m, the answers to the cases."""
    try:
        return whole(question, ask)
    except Unsettled as error:
        if isinstance(error, Fails) or not question.cases:
            raise
        return in_cases(question, ask)


def ordered(number: int, question: Question, asks: Asks) -> Finding:
    """Return the outcome of a property of the order.

    Raises:
        Unsettled: the property is not proved.
    """
    name, ask = STRUCTURE[number]
    found = asks(question, lambda own: own.settled(lambda: ask(own)))
    return Finding(number, name, PROVED, _detail(found, len(found)))


def proved(question: Question, number: int, claim: ast.Claim, asks: Asks) -> Finding:
    """Return the outcome of a claim.

    Raises:
        Unsettled: the claim is not proved. NotAffine: its condition does not have a supported form.
    """

    def ask(own: Question) -> tuple[Proof, list[Cone]]:
        proof = Proof(own, claim)
        return proof, proof.prove()

    found = asks(question, ask)
    costs = dict.fromkeys(tuple(x.items()) for _, cones in found for cone in cones for x in cone.generators)
    proofs = [proof for proof, _ in found if proof.applies] or [found[0][0]]
    return Finding(number, said(claim), PROVED, _detail([x.where for x in proofs], len(found)), costs=tuple(costs))


def _detail(found: Sequence[str], cases: int) -> str:
    """Return the details of a proof, each once, and the number of cases."""
    also = [f"in {cases} cases of m"] if cases > 1 else []
    return "; ".join([*dict.fromkeys(filter(None, found)), *also])


def _complete(question: Question) -> str:
    only = "" if question.model.placing.frozen.is_empty() else "; of frozen stages only F"
    return f"each {question.complete} of every stage and microbatch once, on its rank{only}"


def _clock(question: Question) -> str:
    assert question.clock
    return "a clock increases along every order and every message (strict, so under every model)"


STRUCTURE = (("complete", _complete), ("no deadlock", _clock))
