"""Verification of an optimizer's answer: all checks of the schedule, the certificate and the other entries.

Only facts that can be derived again are accepted. A bound that rests on an engine's word is reported as such; it is not
a proof.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pipesched.compile import examine, load
from pipesched.diagnostics import Code, Diagnostic, fail
from pipesched.examine import Examination, Options
from pipesched.formats.readers import Loaded
from pipesched.model.columns import among
from pipesched.model.costs import Costs
from pipesched.model.ops import COPIES, Op
from pipesched.model.release import AT_W
from pipesched.model.schedule import Schedule
from pipesched.optimizer import answer_read
from pipesched.optimizer.answer_read import Answer
from pipesched.optimizer.asked import Proof
from pipesched.optimizer.codes import OptimizerCode
from pipesched.optimizer.decisions.judged import named
from pipesched.optimizer.optimize_certify import write
from pipesched.optimizer.proof.answer import NOT_JUDGED, as_asked, check_answer
from pipesched.optimizer.proof.clauses import TooManyError
from pipesched.optimizer.proof.entries import Entries, Unreadable
from pipesched.optimizer.proof.judge import Copies, judge, judge_at
from pipesched.optimizer.proof.lrat import begun, steps_of
from pipesched.optimizer.proof.own_order import OWN
from pipesched.optimizer.proof.problem import floored, problem
from pipesched.optimizer.proof.repeats import unrepeated
from pipesched.optimizer.verdict import Terms, Verdict
from pipesched.planning.byte_counts import gigabytes
from pipesched.planning.workload import Workload
from pipesched.report.parts import Claim
from pipesched.report.report import Report
from pipesched.support.foreign import foreign
from pipesched.support.source import Source

FOLLOWED = 10  # factor by which checking a certificate prolongs an operation


def verify(source: Source, options: Options) -> Report:
    """Verify an answer's schedule, certificate and other entries; also at another m if the answer is for every m."""
    answer = answer_read.read(source)
    terms, own = _own_terms(answer, options)
    report = examine(own, replace(_as_asked(answer, options), parameters={})).report
    if not report.ok:
        return replace(report, source=source.name)
    judged = judge(own.schedule, terms, answer.certificate, _copies(answer, terms, options))
    found, verdict = list(judged.findings), judged.verdict
    if verdict is not None:
        said = own.unit.checked.file.documentation if own.unit else None
        found += check_answer(own.schedule, terms, judged, answer.entries, said)
    if (path := options.of(Proof).proof) is not None and not found:
        write_proof(path, answer, terms, _copies(answer, terms, options))
    noted = "" if found or verdict is None else _not_expanded(own.schedule, verdict, options)
    if noted:
        report = replace(report, notes=(*report.notes, foreign(noted)))
    elif not found and verdict is not None and options.parameters:
        loaded = load(answer.schedule, options)
        _require_costs(loaded, terms)
        report = examine(loaded, _as_asked(answer, options)).report
        if not report.ok:
            return replace(report, source=source.name)
        judged = judge_at(loaded.schedule, own.schedule, terms, verdict)
        found, verdict = list(judged.findings), judged.verdict
    aside = (*NOT_JUDGED, *as_asked(terms))
    if (memory := report.parts.memory) is not None and answer.asked and options.of(Workload).model is None:
        asked = ", ".join(map(gigabytes, answer.asked))
        said = f"within the cap of {asked} by a count of activations, rounded up; use --model to count bytes"
        report = replace(report, parts=replace(report.parts, memory=replace(memory, instead=said)))
    return _with_verdict(replace(report, source=source.name), verdict, found, aside)


def write_proof(path: str, answer: Answer, terms: Terms, copies: Copies) -> None:
    """Write PATH.cnf and PATH.lrat for other checkers; if the answer is for every m, for its smallest m.

    Raises:
        PipeschedError: PS712: the answer has no LRAT proof.
        OSError: the files cannot be written.
    """
    given = Entries(answer.certificate, terms.costs.ticks(terms.placement.stages).scale)
    refuted, every = (given.part(name) if name in given else Entries({}, 1) for name in ("refuted", "every"))
    if "proof" in every:
        least = copies(every.whole("microbatches"), every.whole("step"))[0]
        terms, refuted, bound = replace(terms, placement=least.placement), every, every.ticks("value") - 1
    elif "proof" in refuted:
        bound = refuted.ticks("value")
    else:
        help = "repeat the `pipesched optimize` command with --proof PATH"
        raise fail(OptimizerCode.NO_PROOF, "the answer does not contain an LRAT proof", help=help)
    try:
        text, asked = refuted.proof(), problem(terms)
        if "grid" in refuted:
            grid = refuted.ticks("grid")
            asked, bound = floored(asked, grid), bound // grid
        write(path, begun(steps_of(text), asked, bound, whole=True), text)
    except (TooManyError, Unreadable) as error:
        raise fail(OptimizerCode.CERTIFICATE, f"the certificate does not hold: {error}") from None


def _not_expanded(schedule: Schedule, verdict: Verdict, options: Options) -> str:
    """Return a note on an m with more than --max-ops operations, from a verdict for every m; empty for other m."""
    asked = options.parameters.get("m")
    if set(options.parameters) != {"m"} or not isinstance(asked, int) or (value := verdict.at(asked)) is None:
        return ""
    if len(schedule) // schedule.microbatches * asked <= options.max_ops:
        return ""
    best = "and no schedule is shorter" if verdict.everywhere else "or less"
    why = "the certificate repeats a part of the schedule; the file itself is not expanded at this size"
    return f"at m={asked:,}: {verdict.objective} {verdict.unit.text(value)}, {best}: {why}"


def _own_terms(answer: Answer, options: Options) -> tuple[Terms, Loaded]:
    """Return the terms of an answer, and the schedule at the answer's own size.

    Raises:
        PipeschedError: PS225: other costs or another release rule are given. PS710: the certificate does not cover the
            schedule. Also every finding on the file.
    """
    if options.costs is not None or options.release not in (AT_W, answer.release):
        raise fail(
            Code.USAGE,
            "the costs and the release rule of an answer are fixed",
            help="to use others, verify the schedule file instead of the answer",
        )
    own = load(answer.schedule, Options(max_ops=options.max_ops))
    if len(own.schedule) > (limit := options.max_ops // FOLLOWED):
        message = f"the answer has {len(own.schedule):,} operations; at most {limit:,} can be checked"
        raise fail(
            Code.TOO_MANY_OPERATIONS,
            message,
            help=(f"--max-ops raises the limit; each operation of an answer counts as {FOLLOWED}"),
        )
    if answer.certificate.get("backward") != OWN:
        _require_searched(own.schedule, answer)
    if answer.caps is not None and len(answer.caps) != own.schedule.ranks:
        raise fail(OptimizerCode.CERTIFICATE, f"the answer has {len(answer.caps)} caps for {own.schedule.ranks} ranks")
    costs = replace(own.own_costs, unit=answer.unit)
    terms = Terms.of(own.schedule, costs, answer.release, answer.caps, answer.objective)
    return named(own.schedule, replace(terms, asked=answer.asked), answer.certificate), own


def _require_searched(schedule: Schedule, answer: Answer) -> None:
    """Refuse schedules that no certificate covers: with offloads, without a chain of stages, or with unexpected R."""
    what = ""
    if bool((schedule.op == Op.R).any()) and "recompute" not in answer.certificate:
        what = "the schedule of the answer recomputes forwards, which no certificate covers"
    elif bool(among(schedule.op, COPIES).any()):
        what = "the schedule of the answer offloads activations, which no certificate covers"
    elif not schedule.placement.chain:
        what = f"the stages of the answer are not a chain: {schedule.placement.skip}"
    if what:
        raise fail(OptimizerCode.CERTIFICATE, what)


def _as_asked(answer: Answer, options: Options) -> Options:
    """Return the options for verification: the caller's options, with the release rule and the caps of the answer.

    The caller's caps, if given, take precedence. With a model the caps are in bytes, and the release rule is the
    caller's.
    """
    if answer.unit:
        options = replace(options, costs=Costs(unit=answer.unit))
    asked = options.of(Workload)
    if answer.asked and asked.model is not None:
        return options if options.mem_cap else options.owning(replace(asked, cap=asked.cap or answer.asked))
    caps = answer.caps if options.mem_cap is None else options.mem_cap
    return replace(options, release=answer.release, mem_cap=caps)


def _copies(answer: Answer, terms: Terms, options: Options) -> Callable[[int, int], list[Schedule]]:
    """Return a function that loads the schedules of m0, m0 + K, m0 + 2K; it raises PS715 unless m only adds copies."""

    def copies(first: int, step: int) -> list[Schedule]:
        made = [load(answer.schedule, Options({"m": first + n * step}, max_ops=options.max_ops)) for n in range(3)]
        for loaded in made:
            _require_costs(loaded, terms)
        placement, unit = made[0].schedule.placement, made[0].unit
        chunks = [len(placement.chunks(rank)) for rank in range(placement.ranks)]
        wrong = unrepeated(unit.checked.file, step, chunks) if unit else "its schedule is not a .ps file"
        if wrong:
            raise fail(
                OptimizerCode.EVERY,
                f"it does not cover all m: {wrong}",
                help="optimize again; this file proves nothing",
            )
        return [loaded.schedule for loaded in made]

    return copies


def _require_costs(loaded: Loaded, terms: Terms) -> None:
    """Raise PipeschedError, PS715, unless the file has the same costs at another m."""
    if loaded.own_costs.to_json() != terms.costs.to_json():
        raise fail(OptimizerCode.EVERY, f"its costs differ at m={loaded.schedule.microbatches}")


def _with_verdict(report: Report, verdict: Verdict | None, found: list[Diagnostic], aside: tuple[str, ...]) -> Report:
    """Add the verdict to the report: a claim if it is proved, or a warning if its bound rests on an engine's word."""
    if found or verdict is None:
        claim = Claim("certificate", holds=False)
        return replace(report, diagnostics=(*report.diagnostics, *found), claims=(*report.claims, claim))
    claims = (Claim(f"certificate: {verdict.status}", holds=True),) if verdict.proved else ()
    if verdict.word:
        bound = f"that no {verdict.objective} is below {verdict.unit.text(verdict.lower)}"
        message = f"{bound} rests on the word of {verdict.word}, and is not checked"
        found = [Diagnostic(OptimizerCode.ON_THE_WORD, message, help="--require-proof makes this an error")]
    return replace(
        report,
        diagnostics=(*report.diagnostics, *found),
        claims=(*report.claims, *claims),
        verdict=verdict,
        not_judged=aside,
    )


def require_proof(report: Report, made: Examination | None, source: Source | None, options: Options) -> Report:
    """Add PS712 to the report if the verdict is not proved."""
    if not report.ok or (report.verdict is not None and report.verdict.proved):
        return report
    said = "it contains only a schedule" if report.verdict is None else report.verdict.line
    help = "give an answer of `pipesched optimize --json` that is proved optimal"
    found = Diagnostic(OptimizerCode.NO_PROOF, f"the file has no proof: {said}", help=help)
    kept = tuple(d for d in report.diagnostics if d.code is not OptimizerCode.ON_THE_WORD)
    return replace(report, diagnostics=(*kept, found))
