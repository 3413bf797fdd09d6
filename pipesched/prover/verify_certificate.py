"""The verdict on a certificate: its theorems are derived again and, with ``--second-opinion``, also checked by Z3."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from hashlib import sha256

from pipesched import render
from pipesched.diagnostics import Code, Diagnostic, fail
from pipesched.examine import Examination, Options
from pipesched.library.assets import asset, built_in
from pipesched.prover.asked import Opinion
from pipesched.prover.certificate import check
from pipesched.prover.certificate_read import Certificate, read
from pipesched.prover.codes import ProverCode
from pipesched.prover.prove import OPEN
from pipesched.prover.prove_report import NOT_SETTLED, Finding, Theorems
from pipesched.prover.second_opinion import SecondOpinion, judged
from pipesched.report.parts import Claim
from pipesched.report.report import Report
from pipesched.support.source import Source


@dataclass(frozen=True)
class Certified(Report):
    """The verdict on a certificate. decided: the number of decided inclusions. opinion: Z3's answers about the
    inclusions, if requested.
    """

    theorems: Theorems | None = field(default=None, repr=False)
    decided: int = 0
    opinion: SecondOpinion | None = None

    @property
    def exit_status(self) -> int:
        """0 if everything is proved, 1 if something is wrong or refuted, 3 if something is not settled, or undecided by
        Z3.
        """
        open = self.opinion is not None and self.opinion.open
        status = super().exit_status or (self.theorems.exit_status if self.theorems is not None else 1)
        return status or (NOT_SETTLED if open else 0)

    @property
    def ok(self) -> bool:
        """True if everything is proved for the first domain."""
        return self.exit_status == 0

    @property
    def _word(self) -> str:
        return {0: "ok", NOT_SETTLED: "not settled"}.get(self.exit_status, "fail")

    def _about(self) -> str:
        assert self.theorems is not None
        digest = sha256(self.theorems.schedule.text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        return f"a certificate of {render.clean(self.theorems.source)} (text {digest})"

    def text(self, *, color: bool = False, verbose: bool = False) -> str:
        """Return the findings, then the theorems."""
        found = [render.text(diagnostic, color=color) for diagnostic in self.diagnostics]
        if self.theorems is None:
            return "\n\n".join(found)
        head = f"{self._word}  {render.clean(self.source or '')}  {self._about()}"
        said = "    isl decides every inclusion again; nothing is fitted, sampled or scheduled"
        lines = [head, said]
        if self.opinion is not None:
            lines.append(f"    {self.opinion}")
        return "\n\n".join([*found, "\n".join([*lines, self.theorems.text()])])

    def line(self, *, color: bool = False) -> str:
        """Return the verdict on one line."""
        if self.theorems is None or self.diagnostics:
            return super().line(color=color)
        answers = self.theorems.answers
        proved = sum(x.outcome == "proved" for x in answers[0].findings)
        sizes = render.clean(answers[0].domain)
        said = f"{proved} of {len(answers[0].findings)} proved for {sizes}"
        return f"{self._word}  {render.clean(self.source or '')}  {self._about()}   {said}"

    def to_json(self) -> dict[str, object]:
        """Return the published form: the form of a report, and the answers of `prove`."""
        return {**super().to_json(), "certificate": self._certificate()}

    def _certificate(self) -> dict[str, object] | None:
        if self.theorems is None:
            return None
        answers = [answer.to_json() for answer in self.theorems.answers]
        return {
            "schedule": {"source": self.theorems.source, "title": self.theorems.title},
            "answers": [{key: answer[key] for key in ("given", "domain", "findings")} for answer in answers],
            "decided": self.decided,
            "second_opinion": self.opinion and {"agreed": self.opinion.agreed, "open": list(self.opinion.open)},
        }


def verify(source: Source, options: Options) -> Report:
    """Verify a certificate by deriving its entries again.

    Raises:
        PipeschedError: PS225: options for schedules are given; PS720, PS721, PS820.
    """
    asked = options.of(Opinion)
    if replace(options, owned=(), max_ops=Options().max_ops) != Options():
        help = "leave these options out; to check the schedule at one size, verify the .ps file"
        raise fail(
            Code.USAGE,
            f"{source.name} is a certificate for all sizes and costs: it does not accept options for schedules",
            help=help,
        )
    certificate = read(source)
    theorems, shown = check(certificate, keeps=asked.second_opinion)
    answers = (replace(x, findings=tuple(map(_own, x.findings))) for x in theorems.answers)
    theorems = replace(theorems, answers=tuple(answers))
    findings = [x for answer in theorems.answers for x in answer.findings]
    found = _changed(certificate) + [x.counterexample.found for x in findings if x.counterexample is not None]
    opinion = judged(shown) if asked.second_opinion else None
    claims = tuple(
        Claim(x.name, holds=x.outcome == "proved") for x in theorems.answers[0].findings if x.outcome != OPEN
    )
    return Certified(
        theorems.name,
        source.name,
        diagnostics=tuple(found),
        claims=claims,
        title=theorems.title,
        theorems=theorems,
        decided=len(shown),
        opinion=opinion,
    )


def _own(finding: Finding) -> Finding:
    """Return a finding; if the certificate leaves it open, the detail is replaced by our own wording."""
    return replace(finding, detail="the certificate does not prove this") if finding.outcome == OPEN else finding


def _changed(certificate: Certificate) -> list[Diagnostic]:
    """Return PS722 if files with this name exist, here or in the library, but none of them has the certified text."""
    name, text = certificate.schedule.name, certificate.schedule.text
    others: list[str] = []
    if os.path.isfile(name):
        with open(name, encoding="utf-8", errors="replace", newline="") as file:
            others.append(file.read(4 * len(text) + 1))
    if name.removesuffix(".ps") in built_in():
        others.append(asset("schedules", name).read_text("utf-8"))
    if not others or text in others:
        return []
    lines = zip(text.split("\n"), [*others[0].split("\n"), None], strict=False)
    at = next((k for k, (one, other) in enumerate(lines, 1) if one != other), 1)
    message = f"{name} is not the text that {certificate.name} certifies: line {at} differs"
    help = f"prove it again: `pipesched prove {name} --json -o {certificate.name}`"
    return [Diagnostic(ProverCode.OTHER_TEXT, message, help=help)]


def require_certificate(report: Report, made: Examination | None, source: Source | None, options: Options) -> Report:
    """Return the report if no second opinion is requested, or if the report is on a certificate.

    Raises:
        PipeschedError: PS225: the file is not a certificate.
    """
    if options.of(Opinion).second_opinion and report.ok and not isinstance(report, Certified):
        help = "`pipesched prove SCHEDULE --json -o cert.json` writes one"
        raise fail(Code.USAGE, "--second-opinion requires a certificate written by `prove`", help=help)
    return report
