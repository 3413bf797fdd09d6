"""Check a certificate: derive the results from the text of the schedule and from the guesses, and compare them with the
entries.

    text ──the path of `prove`──> relations ──guesses, decided as inclusions──> domain, findings, obligations
                                                                                         │
                                                    each entry of the certificate  ==  what follows

Nothing is fitted, sampled or scheduled, and the derived results are printed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from pipesched.common.library import takes
from pipesched.diagnostics import PipeschedError, fail
from pipesched.formats.readers import checked
from pipesched.language import ast
from pipesched.language.claims import COSTS
from pipesched.language.typecheck import Checked
from pipesched.prover.certificate_read import Certificate, damaged, part
from pipesched.prover.codes import ProverCode
from pipesched.prover.evidence import Evidence, Shown
from pipesched.prover.presburger import isl
from pipesched.prover.prove import (
    OPEN,
    PROVED,
    REFUTED,
    STRUCTURE,
    domain_of,
    ordered,
    proved,
    said,
    values,
    whole_or_cases,
)
from pipesched.prover.prove_report import Answer, Finding, Theorems
from pipesched.prover.question import Question, asked
from pipesched.prover.refute import NO_FAULT, Counterexample, Small
from pipesched.prover.relations import Unsettled
from pipesched.prover.scope import NotAffine
from pipesched.prover.written import Damaged
from pipesched.support.foreign import real

ANSWERS, CLAIMS = 16, 100
_ORDER = "the order"


def certified(theorems: Theorems) -> Theorems:
    """Return theorems in the form in which the checker derives them."""
    return Checker(Certificate(theorems.source, theorems.schedule, _plain(theorems.entries()))).theorems()


def check(certificate: Certificate, *, keeps: bool = False) -> tuple[Theorems, list[Shown]]:
    """Return the theorems of a certificate, and the decided inclusions. keeps: whether each inclusion is stored with
    its sets.

    Raises:
        PipeschedError: PS720: the certificate is damaged; PS721: an entry does not follow; PS820: islpy is not
        installed.
    """
    isl()
    checker = Checker(certificate, keeps)
    found = checker.theorems()
    if (place := _differing(certificate.entries, _plain(found.entries()), "")) is not None:
        raise checker.refused(*place)
    return found, [shown for answer in found.answers for shown in answer.question.evidence.shown]


def _plain(entries: Mapping[str, object]) -> dict[str, object]:
    """Return the entries in the form in which a certificate file is read back."""
    return {key: _value(value) for key, value in entries.items()}


def _value(tree: object) -> object:
    match tree:
        case str():
            return real(tree)
        case Mapping():
            return {real(str(key)): _value(value) for key, value in tree.items()}
        case list() | tuple():
            return [*map(_value, tree)]
    return tree


def _differing(given: object, derived: object, place: str) -> tuple[str, str] | None:
    """Return the first place at which an entry differs from the derived entry, and the difference."""
    if isinstance(given, dict) and isinstance(derived, dict):
        for key in (*derived, *given):
            if key not in given or key not in derived:
                return f"{place}.{key}".lstrip(
                    "."
                ), "it is missing" if key not in given else "the schedule does not imply it"
            if (found := _differing(given[key], derived[key], f"{place}.{key}".lstrip("."))) is not None:
                return found
        return None
    if isinstance(given, list) and isinstance(derived, list):
        for k, (one, other) in enumerate(zip(given, derived, strict=False)):
            if (found := _differing(one, other, f"{place}[{k}]")) is not None:
                return found
        return None if len(given) == len(derived) else (place, f"the list has {len(given)} entries, not {len(derived)}")
    if type(given) is type(derived) and given == derived:
        return None
    return place, f"it is {json.dumps(given)[:200]}, but must be {json.dumps(derived)[:200]}"


@dataclass(eq=False)
class Checker:
    """Derives the entries of a certificate again. keeps: whether each inclusion is stored with its sets."""

    certificate: Certificate
    keeps: bool = False

    def __post_init__(self) -> None:
        if len(self._claims) > CLAIMS:
            raise self.damaged("schedule.text", f"the schedule contains more than {CLAIMS} claims")

    @cached_property
    def _checked(self) -> Checked:
        return checked(self.certificate.schedule)

    @property
    def file(self) -> ast.File:
        """The syntax tree of the schedule."""
        return self._checked.file

    @cached_property
    def _claims(self) -> list[ast.Claim]:
        return [item for item in self.file.items if isinstance(item, ast.Claim)]

    @cached_property
    def _names(self) -> list[str]:
        """The properties of the file, in order."""
        return [*(name for name, _ in STRUCTURE), *map(said, self._claims)]

    def damaged(self, place: str, reason: str) -> PipeschedError:
        """Return the error for an entry that is malformed."""
        return damaged(self.certificate.name, place, reason)

    def refused(self, place: str, reason: str) -> PipeschedError:
        """Return the error for an entry that does not follow."""
        message = f"certificate {self.certificate.name} does not hold at {place}: {reason}"
        help = "do not edit a certificate: `pipesched prove` derives it again for the schedule"
        return fail(ProverCode.NOT_IMPLIED, message, help=help)

    def theorems(self) -> Theorems:
        """Return the theorems that follow from the text and the guesses.

        Raises:
            PipeschedError: PS720, PS721.
        """
        given = part(self.certificate.name, self.certificate.entries, "answers", list)
        if not 0 < len(given) <= ANSWERS:
            raise self.damaged("answers", f"the entry is not a list of 1 to {ANSWERS} answers")
        answers = [self._answer(entry, f"answers[{k}]", first=not k) for k, entry in enumerate(given)]
        if twice := next((k for k, x in enumerate(answers) if x.given in [y.given for y in answers[:k]]), 0):
            raise self.refused(f"answers[{twice}].given", "an earlier answer has the same parameters")
        title = self.file.title or self.file.name.id
        return Theorems(self.certificate.schedule, self.file.name.id, title, tuple(answers))

    def _answer(self, entry: object, place: str, *, first: bool) -> Answer:
        if not isinstance(entry, dict):
            raise self.damaged(place, "it is not an object")
        before = f"{place}."
        given = self._given(part(self.certificate.name, entry, "given", dict, before), f"{before}given")
        known = part(self.certificate.name, entry, "guesses", dict, before)
        said = part(self.certificate.name, entry, "findings", list, before)
        question = asked(self.file, given, Evidence(known, place, self.keeps))
        if not question.model.varying:
            raise self.damaged(f"{before}given", "all parameters have fixed values")
        findings = tuple(self._findings(said, question, f"{before}findings"))
        open = findings[0].outcome == OPEN if findings else False  # then it says nothing about deadlock
        expected = [self._names[0], *self._names[2:]] if open else self._names
        if first and [x.name for x in findings] not in ([_ORDER], expected):
            raise self.refused(
                f"{before}findings", "the list does not contain every property, in the order of the file"
            )
        return Answer(values(question), domain_of(question), findings, question)

    def _given(self, given: Mapping[str, object], place: str) -> dict[str, int]:
        known = {x.name.id for x in self.file.parameters}
        made = {name: value for name, value in given.items() if type(value) is int and name in known}
        if len(made) != len(given):
            raise self.damaged(place, "the entry names an unknown parameter, or has a value that is not a whole number")
        return made

    def _findings(self, said: list[object], question: Question, place: str) -> Iterator[Finding]:
        at, holds = -1, set[int]()
        for k, entry in enumerate(said):
            here = f"{place}[{k}]"
            if not isinstance(entry, dict):
                raise self.damaged(here, "it is not an object")
            name, outcome, detail = (
                part(self.certificate.name, entry, key, str, f"{here}.") for key in ("property", "outcome", "detail")
            )
            if outcome == REFUTED:
                at = self._number(name, at, here) if name != _ORDER else at
                yield self._refuted(name, at, entry, question, here)
                continue
            at = self._number(name, at, here)
            if outcome == OPEN:
                yield Finding(at, name, OPEN, detail)
            elif outcome == PROVED and holds >= {*range(min(at, len(STRUCTURE)))}:
                yield self._proved(at, question, here)
                holds.add(at)
            else:
                raise self.refused(f"{here}.outcome", "the outcome is invalid, or the proof of the order is missing")

    def _number(self, name: str, after: int, place: str) -> int:
        """Return the index of the property to which a finding refers."""
        found = next((k for k in range(after + 1, len(self._names)) if self._names[k] == name), None)
        if found is None:
            raise self.refused(f"{place}.property", "the file does not have this property after the previous one")
        return found

    def _proved(self, number: int, question: Question, place: str) -> Finding:
        try:
            if number < len(STRUCTURE):
                return ordered(number, question, whole_or_cases)
            return proved(question, number, self._claims[number - len(STRUCTURE)], whole_or_cases)
        except Damaged as error:
            raise self.damaged(error.place, error.reason) from None
        except (Unsettled, NotAffine) as error:
            raise self.refused(place, f"`{self._names[number]}` is not proved: {error}") from None

    def _refuted(self, name: str, at: int, entry: Mapping[str, object], question: Question, place: str) -> Finding:
        """Return the finding that `verify` makes at a certificate's counterexample size."""
        own = part(self.certificate.name, entry, "counterexample", dict, f"{place}.")
        here = f"{place}.counterexample."
        size = self._given(part(self.certificate.name, own, "parameters", dict, here), f"{here}parameters")
        costs = part(self.certificate.name, own, "costs", dict, here)
        whole = all(key in COSTS.values() and type(x) is int and x >= 0 for key, x in costs.items())
        if not whole or {**size, **question.given} != size or not takes(self._checked, size):
            raise self.damaged(here, "a cost is not a whole number, or the size is not covered by this answer")
        small = Small(self.certificate.schedule, question.given, question.model.varying)
        if name == _ORDER:
            faults = (x for x in small.report(size, {}).diagnostics if x.severity == "error")
            wrong = next((x for x in faults if x.code not in NO_FAULT and not x.code.usage), None)
            found = None if wrong is None else Counterexample(size, {}, wrong)
        else:
            found = small.at(at - len(STRUCTURE), size, costs) if at >= len(STRUCTURE) else None
        if found is None:
            raise self.refused(here.rstrip("."), "the property does not fail at this counterexample")
        return Finding(max(at, 0), name, REFUTED, counterexample=found)
