"""What is proved about a schedule, as JSON that `check.optimum` re-checks on its own.

The shape is in `check.optimum_certificate`. A bound is given by its terms: two times and some sums. A refutation is an
engine's word, with what was asked. The verdict is not given here: it is the checker's.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pipesched.model.numbers import plain
from pipesched.model.ops import Op
from pipesched.optimizer.bounds.longest_paths import framed
from pipesched.optimizer.bounds.lower_bound import Bound, lower_bound
from pipesched.optimizer.bounds.warmup import Ends
from pipesched.optimizer.instance import Instance
from pipesched.optimizer.problem import Problem
from pipesched.optimizer.repeat.periodic import Periodic
from pipesched.optimizer.search.state import State


def certificate(
    instance: Instance, state: State, repeated: Periodic | None = None, proof: Mapping[str, object] | None = None
) -> dict[str, object]:
    """What is known of a schedule that was found. repeated: what makes it one for every m; proof: of what was refuted,
    or of the least m where nothing was.
    """
    refuted = state.refuted
    asked = None if refuted is None else (refuted.bound, refuted.engine, refuted.ranks)
    assert state.value is not None
    every = None if repeated is None else _every(instance, repeated)
    if every is not None and proof is not None and refuted is None:
        every["proof"] = proof
    return certify(state.problem, state.value, state.bound, asked, instance.to_json(), proof) | {"every": every}


def certify(
    problem: Problem,
    value: int,
    bound: Bound,
    refuted: tuple[int, str, tuple[int, ...] | None] | None = None,
    terms: Mapping[str, object] | None = None,
    proof: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """What is known of a schedule with objective `value`, in ticks. refuted: (ticks, engine, ranks or None for all);
    terms: what it is about.
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
            **({} if proof is None else {"proof": proof}),
        },
    }


def _every(instance: Instance, repeated: Periodic) -> dict[str, object]:
    """The schedule of the seam, with its starts, and its bound where that is what it takes."""
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


def _bound(problem: Problem, bound: Bound) -> dict[str, object]:
    terms = bound.terms
    times = {"head": terms.head, "work": terms.work, "tail": terms.tail, "value": bound.value}
    if isinstance(terms, Ends):
        times = {**times, "before": terms.before, "after": terms.after}
    made: dict[str, object] = {"kind": bound.kind, "rank": bound.rank}
    made |= {"frame": bound.frame} if problem.objective == "span" else {}
    made |= {name: plain(problem.time(ticks)) for name, ticks in times.items()}
    if not isinstance(terms, Ends):
        made["operations"] = _operations(problem, bound)
    return made


def _operations(problem: Problem, bound: Bound) -> list[dict[str, object]]:
    """The operations of a set: those of the rank with at least its head and its tail, or one of them for a path.

    Along a sequence heads rise and tails fall, so they are a range of it.
    """
    found, terms, made = framed(problem, bound.frame), bound.terms, []
    for q in problem.on[bound.rank]:
        own = slice(int(problem.first[q]), int(problem.first[q + 1]))
        within = np.flatnonzero((found.head[own] >= terms.head) & (found.tail[own] >= terms.tail))
        if bound.kind == "path":
            alone = (found.head[own] == terms.head) & (found.tail[own] == terms.tail)
            within = np.flatnonzero(alone & (problem.duration[q] == terms.work))[:1]
        if len(within):
            made.append(
                {
                    "op": Op(int(problem.op[q])).name,
                    "route": int(problem.route[q]),
                    "stage": int(problem.stage[q]),
                    "microbatches": [int(within[0]), int(within[-1]) + 1],
                }
            )
    return made[:1] if bound.kind == "path" else made
