"""The answer to a question with a decision: the best alternative, its order, and the proof that no other alternative is
better.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pipesched.diagnostics import fail
from pipesched.model.numbers import plain
from pipesched.model.schedule import Schedule
from pipesched.optimizer.codes import OptimizerCode
from pipesched.optimizer.decisions.alternatives import Decision
from pipesched.optimizer.decisions.search import Best, Searcher
from pipesched.optimizer.optimize_certify import certified
from pipesched.optimizer.optimize_report import Optimum, bound_by, notes
from pipesched.optimizer.printed import printed
from pipesched.optimizer.proof.judge import judge
from pipesched.optimizer.solve import convert
from pipesched.optimizer.solve.certificate import certificate
from pipesched.optimizer.solve.instance import Instance
from pipesched.optimizer.solve.meter import Meter
from pipesched.optimizer.solve.search.state import Limits, Refutation, State
from pipesched.optimizer.verdict import FOUND, Verdict

_SEARCH = 0.85  # part of the time for the search; the rest is for a proof


def answered(decision: Decision, limits: Limits, name: str, progress: Callable[[State], None], meter: Meter) -> Optimum:
    """Find the best alternative and its best order, and have the checker judge both. meter: the clock with its limit.

    Raises:
        PipeschedError: PS702, no alternative has a schedule within the caps.
    """

    def instance_of(choice: tuple[int, ...]) -> Instance:
        made = decision.terms(choice)
        assert isinstance(made, Instance)
        return made

    part = meter.part(_SEARCH)
    best = Searcher(decision, instance_of, limits, progress, part).run()
    meter.spend(part.spent)
    if best.choice is None or best.state is None or best.state.best is None:
        message = f"none of {decision.count:,} {decision.plural} has a schedule within the caps"
        raise fail(OptimizerCode.INFEASIBLE, message, help="use a higher cap, fewer layers per rank, or more ranks")
    instance, state = instance_of(best.choice), best.state
    schedule = replace(convert.to_schedule(state.problem, best.state.best), name=name)
    written, judged = _judged(decision, best, instance, schedule, meter)
    made, text, report = printed(schedule, instance, judged, name)
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
    alone = judge(schedule, instance, certificate(instance, state)).accepted()
    proof = None
    if alone.word:
        ranks = None if state.refuted is None else state.refuted.ranks
        below = state.problem.time(state.lower - 1)
        proof = certified(instance, below, ranks[0] if ranks else None, None, meter.part(1.0)).entry or None
        if proof is None:
            state.believe_no_engine()
    elif alone.lower < state.problem.time(state.lower) and state.refuted is None:
        state.refuted = Refutation(state.lower - 1, "ranks", None)  # the checker's formulas show a weaker bound
        if judge(schedule, instance, certificate(instance, state)).accepted().word:
            state.refuted = None
    written = certificate(instance, state, None, proof) | {"decision": entry}
    return written, judge(schedule, instance, written).accepted()
