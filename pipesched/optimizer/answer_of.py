"""The answer from a search: its best schedule and certificate, judged by the checker, printed, read back and verified.

best orders ──> schedule ──> certificate ──> the checker's verdict ──> printed, read back, examined
                                 └─ an engine's refutation counts only with a proof that the checker has followed
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pipesched.model.schedule import Schedule
from pipesched.optimizer.baselines import Known
from pipesched.optimizer.optimize_certify import SECONDS, Made, certified, confirmed
from pipesched.optimizer.optimize_report import Optimum, bound_by, notes
from pipesched.optimizer.optimize_request import Request, Target
from pipesched.optimizer.printed import printed
from pipesched.optimizer.proof.every import apart
from pipesched.optimizer.proof.judge import judge
from pipesched.optimizer.proof.problem import problem as whole
from pipesched.optimizer.solve import convert
from pipesched.optimizer.solve.certificate import certificate
from pipesched.optimizer.solve.instance import Instance
from pipesched.optimizer.solve.meter import SECOND, Meter
from pipesched.optimizer.solve.problem import Orders
from pipesched.optimizer.solve.search.state import Refutation, State
from pipesched.optimizer.verdict import FOUND, Verdict

if TYPE_CHECKING:
    from pipesched.lift.kernel import Kernel
    from pipesched.optimizer.solve.repeat.periodic import Periodic

_PROOF = 0.25  # least part of the remaining time for a proof of an engine's refutation
_BY_RANKS, _OF_EACH = 800_000, 2_000  # steps of the checker for ranks one by one: at most, and for each operation
_PROOF_OF_EACH = 0.75  # part of that time for the largest refuted objective; if it fails, a smaller one is tried


def answer_of(
    request: Request, target: Target, state: State, known: list[Known], repeated: Periodic | None, meter: Meter
) -> Optimum:
    """Build the answer from the state of a search: judge, print, read back and check its best schedule."""
    instance, problem = target.instance, state.problem
    noted, seed = notes(instance, state), request.limits.seed
    if state.best is None:
        least, by = problem.time(state.lower), bound_by(state)
        return Optimum(instance, least=least, least_by=by, reason=state.stopped, seed=seed, known=known, notes=noted)
    best, said = _steady(request, instance, state, known, meter)
    schedule = replace(convert.to_schedule(problem, best), name=request.name)
    written, judged, more = _certified(request, instance, state, schedule, repeated, meter)
    kernel, said = repeated.printed(problem) if repeated else None, [*said, *noted, *more]
    answer = answered(
        request,
        instance,
        schedule,
        written,
        judged,
        source=state.source,
        stopped=state.stopped,
        said=said,
        kernel=kernel,
    )
    return replace(answer, known=known, given=known[0] if target.given else None)


def answered(
    request: Request,
    instance: Instance,
    schedule: Schedule,
    written: Mapping[str, object],
    told: Verdict,
    *,
    source: str,
    stopped: str,
    said: Sequence[str],
    kernel: Kernel | None = None,
) -> Optimum:
    """Build the answer from a schedule, its certificate and the checker's verdict; print and check the schedule.

    source: the name of the search that found the schedule; stopped: the reason why the search ended before it could
    exclude a better schedule; said: the notes on the answer.
    """
    made, text, report = printed(schedule, instance, told, request.name, kernel)
    return Optimum(
        instance,
        judged=told,
        analysis=made,
        reason=stopped if told.status == FOUND else "",
        found_by=source,
        seed=request.limits.seed,
        notes=tuple(said),
        source=text,
        certificate={**written, **told.entries()},
        checked=report,
    )


def _certified(
    request: Request,
    instance: Instance,
    state: State,
    schedule: Schedule,
    repeated: Periodic | None,
    meter: Meter,
) -> tuple[dict[str, object], Verdict, list[str]]:
    """Return the certificate of a schedule, the checker's verdict, and notes on the proofs.

    An engine's refutation counts only with a proof that the checker could follow.
    """
    problem, said = state.problem, list[str]()
    if request.certify or request.limits.proof:
        meter.limit = max(meter.limit, meter.spent + SECONDS * SECOND)
    written, judged = _judged(schedule, instance, state, repeated)
    meter.limit = max(meter.limit, meter.spent + _PROOF * meter.limit)
    if judged.word:
        meter.spend(min(_BY_RANKS, _OF_EACH * problem.operations))
        proof = _believed(request, instance, state, meter, said)
        written, judged = _judged(schedule, instance, state, repeated, proof)
    elif request.limits.proof:
        said.append(_proof(request, instance, state, meter).note)
    if judged.lower < problem.time(state.lower) and state.refuted is None:  # the checker's formulas show a weaker bound
        state.refuted = Refutation(state.lower - 1, "ranks", None)
        written, judged = _judged(schedule, instance, state, repeated)
    if judged.word:
        state.refuted = None
        written, judged = _judged(schedule, instance, state, repeated)
    if request.certify and repeated is not None and not judged.everywhere:
        every = _proof_for_every(request, instance, repeated, meter)
        said.append(every.note)
        if every.entry:
            written, judged = _judged(schedule, instance, state, repeated, least=every.entry)
    return written, judged, said + _agreed(request, instance, state, judged)


def _believed(
    request: Request, instance: Instance, state: State, meter: Meter, said: list[str]
) -> dict[str, object] | None:
    """Return the proof entry for the largest refuted objective whose refutation can be proved, or None. Refutations of
    larger objectives are withdrawn. said: list to which a note on each attempt is appended.
    """
    tried = False
    while (found := state.refuted) is not None and not (tried and found.engine == "ranks"):
        tried = True
        with meter.part(_PROOF_OF_EACH if state.earlier else 1.0) as part:
            proof = _proof(request, instance, state, part)
        said.append(proof.note)
        if proof.entry:
            return proof.entry
        state.disbelieve()
    return None


def _steady(
    request: Request, instance: Instance, state: State, known: list[Known], meter: Meter
) -> tuple[Orders, list[str]]:
    """Return the best orders or, with --jitter, orders that are as short and have a lower p95 makespan; and notes."""
    assert state.best is not None
    if request.jitter is None:
        return state.best, []
    from pipesched.optimizer.steady import Steady

    others = [k.orders for k in known if k.fits and k.orders is not None]
    search = Steady.of(instance, state.problem, request.jitter)
    found, note = search.best(state.best, others, request.limits.seed, meter)
    return found, [note]


def _agreed(request: Request, instance: Instance, state: State, judged: Verdict) -> list[str]:
    """Return a note on whether Z3 confirms an optimum, if the user requests it or the bound rests on a refutation."""
    if judged.value != judged.lower or not (request.confirm or state.refuted is not None):
        return []
    agreed = confirmed(instance, judged.value, judged.lower - state.problem.time(1), asked=request.confirm)
    return [agreed] if agreed else []


def _proof(request: Request, instance: Instance, state: State, meter: Meter) -> Made:
    """Prove the lower bound in steps that the checker can follow."""
    asked = (state.bound.rank,) if state.refuted is None else state.refuted.ranks
    rank = asked[0] if asked else None
    try:
        grid = None if state.refuted is None or state.refuted.grid == 1 else state.problem.time(state.refuted.grid)
        return certified(instance, state.problem.time(state.lower - 1), rank, request.limits.proof, meter, grid)
    except (KeyboardInterrupt, MemoryError) as error:
        return _none(error)


def _proof_for_every(request: Request, instance: Instance, repeated: Periodic, meter: Meter) -> Made:
    """Prove that the value at the schedule's smallest m is optimal, if that implies optimality for every m."""
    seam = repeated.seam
    least, problem = instance.at(seam.microbatches), instance.problem(seam.microbatches)
    period = problem.time(seam.period) * least.costs.ticks(least.placement.stages).scale
    if request.objective == "span" or apart(whole(least), seam.every) < period:
        return Made({}, "no proof for every m: longest paths allow microbatches to start less than a period apart")
    try:
        return certified(least, problem.time(seam.value - 1), None, None, meter)
    except (KeyboardInterrupt, MemoryError) as error:
        return _none(error)


def _none(error: BaseException) -> Made:
    return Made({}, f"no proof: {'interrupted' if isinstance(error, KeyboardInterrupt) else 'out of memory'}")


def _judged(
    schedule: Schedule,
    instance: Instance,
    state: State,
    repeated: Periodic | None,
    proof: Mapping[str, object] | None = None,
    least: Mapping[str, object] | None = None,
) -> tuple[dict[str, object], Verdict]:
    """Return the certificate of the schedule, and the checker's verdict on it. proof, least: see `certificate`.

    Raises:
        PipeschedError: PS71x: the checker refuses the schedule or the certificate.
    """

    def copies(first: int, step: int) -> list[Schedule]:
        assert repeated is not None
        problems = [instance.problem(first + n * step) for n in range(3)]
        return [convert.to_schedule(problem, repeated.seam.unrolled(problem)) for problem in problems]

    written = certificate(instance, state, repeated, proof, least)
    return written, judge(schedule, instance, written, copies).accepted()
