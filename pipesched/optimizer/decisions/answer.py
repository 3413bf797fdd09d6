"""The answer to a question with a decision: the best alternative, its order, and what shows that no other is better."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from pipesched.compile import Options, examine, load
from pipesched.diagnostics import PipeschedError, fail
from pipesched.language.parser import OPS_A_WORD
from pipesched.lift import writer
from pipesched.model.numbers import plain
from pipesched.model.schedule import Schedule
from pipesched.optimizer.codes import OptimizerCode
from pipesched.optimizer.decisions.alternatives import Decision
from pipesched.optimizer.decisions.search import Best, Searcher
from pipesched.optimizer.optimize_certify import certified
from pipesched.optimizer.optimize_report import Optimum, bound_by, claims, notes
from pipesched.optimizer.proof.judge import judge
from pipesched.optimizer.solve import convert
from pipesched.optimizer.solve.certificate import certificate
from pipesched.optimizer.solve.instance import MAX_OPS, Instance
from pipesched.optimizer.solve.meter import SECOND, Meter
from pipesched.optimizer.solve.search.state import Limits, Refutation, State
from pipesched.optimizer.verdict import FOUND, Verdict, documentation
from pipesched.report.report import Report
from pipesched.schedule_analysis import Analysis
from pipesched.support.source import Source


def answered(decision: Decision, limits: Limits, name: str, progress: Callable[[State], None]) -> Optimum:
    """Find the best alternative and its best order, and have the checker judge both.

    Raises:
        PipeschedError: PS702, no alternative has a schedule within the caps.
    """

    def instance_of(choice: tuple[int, ...]) -> Instance:
        made = decision.terms(choice)
        assert isinstance(made, Instance)
        return made

    meter = Meter(limits.seconds * SECOND)
    best = Searcher(decision, instance_of, limits, progress, meter).run()
    if best.choice is None or best.state is None or best.state.best is None:
        message = f"none of {decision.count:,} {decision.plural} has a schedule within the caps"
        raise fail(OptimizerCode.INFEASIBLE, message, help="a higher cap, fewer layers on a rank, or more ranks")
    instance, state = instance_of(best.choice), best.state
    schedule = replace(convert.to_schedule(state.problem, best.state.best), name=name)
    written, judged = _judged(decision, best, instance, schedule, meter)
    made, text, report = _printed(schedule, instance, judged, name)
    verdict = {"verdict": judged.status, "lower_bound": plain(judged.lower), "gap": plain(judged.gap)}
    stopped = best.stopped or state.stopped
    return Optimum(
        instance,
        judged=judged,
        analysis=made,
        least=judged.lower,
        least_by=bound_by(state),
        reason=stopped if judged.status == FOUND else "",
        found_by=state.source,
        seed=limits.seed,
        notes=notes(instance, state),
        source=text,
        certificate=written | verdict,
        checked=report,
    )


def _judged(
    decision: Decision, best: Best, instance: Instance, schedule: Schedule, meter: Meter
) -> tuple[dict[str, object], Verdict]:
    """Return the certificate, and the checker's verdict on it."""
    assert best.state is not None and best.choice is not None
    state = best.state
    entry: dict[str, object] = {
        "kind": decision.kind,
        "taken": list(best.choice),
        "proofs": [
            {"taken": list(choice), **({"lrat": text} if text else {})} for choice, text in sorted(best.proofs.items())
        ],
        **decision.to_json(),
    }
    alone = _verdict(schedule, instance, certificate(instance, state))
    proof = None
    if alone.word:
        ranks = None if state.refuted is None else state.refuted.ranks
        below = state.problem.time(state.lower - 1)
        proof = certified(instance, below, ranks[0] if ranks else None, None, meter.part(1.0)).entry or None
        if proof is None:
            state.believe_no_engine()
    elif alone.lower < state.problem.time(state.lower) and state.refuted is None:
        state.refuted = Refutation(state.lower - 1, "ranks", None)  # the checker's formulas show a weaker bound
        if _verdict(schedule, instance, certificate(instance, state)).word:
            state.refuted = None
    written = certificate(instance, state, None, proof) | {"decision": entry}
    return written, _verdict(schedule, instance, written)


def _verdict(schedule: Schedule, instance: Instance, written: Mapping[str, object]) -> Verdict:
    """Return the checker's verdict on a certificate; raise PipeschedError if it refuses it."""
    found = judge(schedule, instance, written)
    if found.verdict is None:
        raise PipeschedError(found.findings)
    return found.verdict


def _printed(schedule: Schedule, instance: Instance, judged: Verdict, name: str) -> tuple[Analysis, str, Report]:
    """Return the analysis of a schedule, its text, and the report on the text; raise PipeschedError if it fails."""
    made = Analysis(schedule, instance.costs, instance.release)
    text = writer.write(
        schedule,
        name=name,
        documentation=documentation(judged, instance),
        costs=instance.costs,
        claims=claims(made, instance, judged),
    )
    source = Source("optimum.ps", text)
    loaded = load(source, Options(max_ops=max(MAX_OPS, OPS_A_WORD * len(text))))
    columns = ("op", "stage", "microbatch", "start")
    if not all(np.array_equal(getattr(loaded.schedule, x), getattr(schedule, x)) for x in columns):
        raise RuntimeError("the printed file is not the schedule that was found")
    options = Options(costs=instance.costs, release=instance.release, mem_cap=instance.caps)
    report = examine(loaded, options).report
    if not report.ok:
        raise PipeschedError([d for d in report.diagnostics if d.severity == "error"])
    return made, text, report
