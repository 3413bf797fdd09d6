"""The results of `prove`, as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from itertools import groupby

from pipesched import render
from pipesched.prover.question import Question
from pipesched.prover.refute import Counterexample
from pipesched.support.source import Source

FORMAT, VERSION = "pipesched-proof", 1
NOT_SETTLED = 3  # exit status
_INDENT = " " * 15
_EVEN = "assumed: each cost is the same for every stage and microbatch; messages do not queue"


@dataclass(frozen=True)
class Finding:
    """A property and its outcome: proved, refuted or not settled. detail: the proof, or the missing step.

    costs: the generators of the costs for which the property is proved; empty if it does not depend on costs.
    """

    number: int
    name: str
    outcome: str
    detail: str = ""
    counterexample: Counterexample | None = None
    costs: tuple[tuple[tuple[str, int], ...], ...] = ()

    @property
    def said(self) -> list[str]:
        """The lines below the property's name."""
        if self.counterexample is None:
            return [self.detail] if self.outcome != "proved" else []
        found = render.concise(self.counterexample.found, None)
        return [found, f"the smallest size found: {self.counterexample.arguments()}"]

    def line(self) -> str:
        """Return the finding as one line."""
        detail = f": {self.detail}" if self.outcome == "proved" and self.detail else ""
        return f"  {self.outcome:<11}  {self.name}{detail}"

    def to_json(self) -> dict[str, object]:
        """Return the finding as a JSON object."""
        found = self.counterexample
        return {
            "property": self.name,
            "outcome": self.outcome,
            "detail": self.detail if self.costs or self.outcome != "proved" else "",
            "costs": [dict(each) for each in self.costs],
            "counterexample": found
            and {
                "parameters": dict(found.parameters),
                "costs": dict(found.costs),
                "diagnostic": render.as_json(found.found),
            },
        }


@dataclass(frozen=True)
class Answer:
    """The findings for all sizes of one domain. given: the parameters that are fixed in this domain."""

    given: Mapping[str, int]
    domain: str
    findings: tuple[Finding, ...]
    question: Question = field(repr=False, compare=False)

    def to_json(self) -> dict[str, object]:
        """Return the answer as a JSON object: the findings, and the data that a checker needs."""
        proved = any(finding.outcome == "proved" for finding in self.findings)
        evidence = self.question.evidence
        return {
            "given": dict(self.given),
            "domain": self.domain,
            "findings": [finding.to_json() for finding in self.findings],
            "statements": self.question.statements() if proved else [],
            "guesses": evidence.guesses() if proved else {},
            "obligations": evidence.obligations() if proved else [],
        }


@dataclass(frozen=True)
class Theorems:
    """All answers for a file: first for every p, then, for the properties that stayed open, for single values of p."""

    schedule: Source
    name: str
    title: str
    answers: tuple[Answer, ...]

    @property
    def source(self) -> str:
        """The name of the file."""
        return self.schedule.name

    @cached_property
    def outcomes(self) -> Mapping[int, set[str]]:
        """The outcomes of each property: for every p, or otherwise for each p that was tried."""
        found: dict[int, set[str]] = {}
        for answer in self.answers:
            for finding in answer.findings:
                found.setdefault(finding.number, set()).add(finding.outcome)
        return found

    @property
    def ok(self) -> bool:
        """True if every property is proved for the first domain."""
        return all(finding.outcome == "proved" for finding in self.answers[0].findings)

    @property
    def exit_status(self) -> int:
        """0 if everything is proved, 1 if something is refuted, 3 if something is not settled."""
        if any("refuted" in found for found in self.outcomes.values()):
            return 1
        return 0 if self.ok else NOT_SETTLED

    def __str__(self) -> str:
        return self.text()

    def text(self, **_: object) -> str:
        """Return all answers as text."""
        lines: list[str] = []
        for answer in self.answers:
            given = ", ".join(f"{name} = {value}" for name, value in answer.given.items())
            sizes = [given, answer.domain]
            lines.append(f"{self.title}   {': '.join(filter(None, sizes))}".rstrip())
            for said, alike in groupby(answer.findings, key=lambda finding: finding.said):
                lines += [*(finding.line() for finding in alike), *(f"{_INDENT}{line}" for line in said)]
        if any(finding.costs for answer in self.answers for finding in answer.findings):
            lines.append(_EVEN)
        return "\n".join(map(render.clean, lines))

    def to_json(self) -> dict[str, object]:
        """Return the published form, a certificate, which has been checked and contains only the entries that the
        checker needs.
        """
        from pipesched.prover.certificate import certified

        return certified(self).entries()

    def entries(self) -> dict[str, object]:
        """Return all results and evidence as a JSON object."""
        text = self.schedule.text
        return {
            "format": FORMAT,
            "version": VERSION,
            "ok": self.ok,
            "name": self.name,
            "title": self.title,
            "source": self.source,
            "schedule": {"sha256": sha256(text.encode("utf-8", "surrogatepass")).hexdigest(), "text": text},
            "answers": [answer.to_json() for answer in self.answers],
        }
