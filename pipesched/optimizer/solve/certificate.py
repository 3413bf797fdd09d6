"""The certificate of a schedule, as JSON that `optimizer.proof` derives anew; `optimizer.proof.entries` lists its
entries.

A bound is stated as a head and a tail for a rank. A refutation states which engine refuted which objective under which
terms; the checker repeats a refutation by `ranks`, and follows a proof step by step. The checker adds the verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pipesched.model.numbers import plain
from pipesched.optimizer.solve.bounds.lower_bound import Bound, Busy, lower_bound
from pipesched.optimizer.solve.instance import Instance
from pipesched.optimizer.solve.problem import Problem
from pipesched.optimizer.solve.search.state import State

if TYPE_CHECKING:
    from pipesched.optimizer.solve.repeat.periodic import Periodic


def certificate(
    instance: Instance,
    state: State,
    repeated: Periodic | None = None,
    proof: Mapping[str, object] | None = None,
    least: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """Return the certificate of a search's best schedule.

    repeated: the extension to every m; proof: the proof of the refuted objective; least: the proof at the smallest m.
    """
    refuted = state.refuted
    asked = None if refuted is None else (refuted.bound, refuted.engine, refuted.ranks)
    assert state.value is not None
    every = None if repeated is None else _every(instance, repeated) | ({} if least is None else {"proof": least})
    grid = None if refuted is None or refuted.grid == 1 else plain(state.problem.time(refuted.grid))
    made = certify(state.problem, state.value, state.bound, asked, instance.to_json(), proof=proof, grid=grid)
    return made | {"every": every}


def certify(
    problem: Problem,
    value: int,
    bound: Bound,
    refuted: tuple[int, str, tuple[int, ...] | None] | None = None,
    terms: Mapping[str, object] | None = None,
    *,
    proof: Mapping[str, object] | None = None,
    grid: int | str | None = None,
) -> dict[str, object]:
    """Return the certificate of a schedule for one m with objective `value`, in ticks.

    refuted: (ticks, engine, ranks or None for all); terms, proof, grid: the terms, the proof and the
    grid of the refutation.
    """
    return {
        "objective": problem.objective,
        "backward": "fused" if problem.fused else "split",
        "schedule": plain(problem.time(value)),
        "bound": _bound(problem, bound),
        "refuted": None
        if refuted is None
        else {
            "value": plain(problem.time(refuted[0])),
            "engine": refuted[1],
            "ranks": None if refuted[2] is None else list(refuted[2]),
            "terms": terms,
            **({} if grid is None else {"grid": grid}),
            **({} if proof is None else {"proof": proof}),
        },
    }


def _every(instance: Instance, repeated: Periodic) -> dict[str, object]:
    """Return the entry `every`: the seam's schedule with its starts, and the lower bound if the schedule attains it."""
    seam, problem = repeated.seam, instance.problem(repeated.seam.microbatches)
    bound = repeated.bound if repeated.optimal else lower_bound(problem)
    starts = [[plain(problem.time(int(seam.start[x]))) for x in order] for order in seam.unrolled(problem)]
    return {
        "microbatches": seam.microbatches,
        "step": seam.every,
        "value": plain(problem.time(seam.value)),
        "growth": plain(problem.time(seam.period) / seam.every),
        "seam": plain(problem.time(seam.at)),
        "starts": starts,
        "bound": _bound(problem, bound) if bound.value == seam.value else None,
    }


def _bound(problem: Problem, bound: Bound) -> dict[str, object] | None:
    """Return the entry `bound` for a bound by work between two times; None for others, which the checker derives."""
    if not isinstance(bound.terms, Busy):
        return None
    frame = {"frame": bound.frame} if problem.objective == "span" else {}
    times = {"head": plain(problem.time(bound.terms.head)), "tail": plain(problem.time(bound.terms.tail))}
    return {"rank": bound.rank, **frame, **times}
