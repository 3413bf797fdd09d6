"""Frozen stages run no W, and frozen stages before the first trained one run no backward; optima equal those of an
exhaustive search."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import pipesched
from pipesched.diagnostics import PipeschedError
from pipesched.model.release import Release
from pipesched.optimizer.optimize import optimize
from pipesched.optimizer.optimize_request import Request
from pipesched.optimizer.proof.problem import problem
from pipesched.optimizer.proof.ranks import too_busy
from pipesched.optimizer.proof.work import everything
from pipesched.optimizer.solve.bounds.lower_bound import lower_bound
from pipesched.optimizer.solve.instance import Instance as Asked
from pipesched.optimizer.solve.search.state import Limits
from pipesched.support.source import Source
from tests.depth import deep
from tests.makers.instances import given, placement_of
from tests.oracles.brute import Instance, optimum, random_instance, steps

SCHEDULE = """schedule tuned(p, m = 2 * p)
"The first half is frozen."
stage s in 0 .. p on rank s
frozen s in 0 .. p // 2
rank r {
  let warmup = min(p - 1 - r, m)
  if r < p // 2 { repeat m { F } }
  else { repeat warmup { F } repeat m - warmup { F I W } repeat warmup { I W } }
}
"""


def asked(x: Instance) -> Asked:
    placement, (costs, release, caps) = replace(placement_of(x), frozen=x.frozen), given(x)
    release = Release.parse(f"I={release.at_input},W={release.at_weight}")
    return Asked(placement, costs, release, caps, x.fused, x.objective)


def instances(first: int, count: int, most: int = 14) -> Iterator[tuple[Instance, Asked, int | None]]:
    """Yield tiny instances that bounds cover, and the optimum, None if no schedule is within the caps."""
    for seed in range(first, first + count):
        rng = random.Random(seed)
        x = random_instance(seed, ranks=3, microbatches=3)
        frozen = tuple(s for s in range(x.stages) if rng.random() < (0.7 if s < x.stages // 2 else 0.3))
        x = replace(x, frozen=frozen, fused=x.fused and rng.random() < 0.5)
        if 0 < len(frozen) < x.stages and len(steps(x)) <= most and not (made := asked(x)).not_covered:
            yield x, made, optimum(x)


def test_no_bound_is_above_the_optimum() -> None:
    """On any placement, with stages before the first trained one, between and after trained ones."""
    seen: Counter[str] = Counter()
    for x, made, best in instances(0, deep(1500, usual=1000)):
        if best is None or made.lacking:
            assert best is None or not made.lacking, x
            continue
        whole, own = problem(made), made.problem()
        ticks = int(best * made.costs.ticks(made.placement.stages).scale)
        assert own.time(lower_bound(own).value) <= best, x
        assert max(everything(whole, rank).value for rank in set(whole.rank.values())) <= ticks, x
        assert too_busy(whole, ticks) is None, x
        seen.update(["all", "alone" if x.alone else "fed"])
        seen["met"] += too_busy(whole, ticks - 1) is not None
    assert min(seen["alone"], seen["fed"]) > 20
    assert seen["met"] > 0.8 * seen["all"]


def test_answers_are_the_best_of_all_schedules() -> None:
    """Each is proved, and its file verifies without an operation that frozen stages do not run."""
    seen: Counter[str] = Counter()
    for x, made, best in instances(0, deep(160), most=12):
        request = Request(
            parameters={"p": x.ranks, "m": len(x.route_of)},
            placement=made.placement,
            costs=made.costs,
            release=made.release,
            mem_cap=made.caps,
            fused=made.fused,
            limits=Limits(5),
        )
        if len(x.rank_of) > 1 or len(seen) > deep(12):
            continue
        answer = optimize(request)
        if best is None:
            assert answer.impossible, x
        else:
            assert answer.proved and answer.value == best, x
            told = pipesched.verify(Source("answer.json", json.dumps(answer.to_json())))
            assert told.ok and told.verdict is not None and told.verdict.proved
            assert len(answer.analysis.schedule) == len(steps(x)) if answer.analysis else False
        seen[str(x.frozen) + str(x.rank_of)] += 1
    assert sum(seen.values()) > deep(6)


def test_a_schedule_with_frozen_stages_is_improved_or_kept() -> None:
    """Never longer than the schedule itself, which is played by hand: 8 forwards, then 24 of work on rank 3 after 3."""
    answer = pipesched.optimize(Source("tuned.ps", SCHEDULE), p=4, mem_cap=2, time_limit=10)
    assert answer.proved and answer.value == 3 + 8 * 3
    assert answer.given is not None and answer.given.spent.makespan == 28
    assert "frozen s in 0 .. 2" in answer.source and "stages 0 to 1 frozen" in answer.text()


def test_forwards_alone_take_the_longest_path() -> None:
    """Of a loop without backward: stages of 3, 1, 2, 1 ticks on two ranks; rank 0 has 5 a microbatch, and 1 is left."""
    text = "schedule f(p, v = 2, m = 6)\nstage s in 0 .. p * v on rank s % p\nrank r { drain F }\n"
    text = text.replace("drain F", "for i in 0 .. v { repeat m { F[i] } }")
    answer = pipesched.optimize(Source("f.ps", text), p=2, mem_cap=1, costs="F=[3,1,2,1]")
    assert answer.proved and answer.value == 6 * 5 + 1
    told = pipesched.verify(Source("answer.json", json.dumps(answer.to_json())))
    assert told.ok and told.verdict is not None and told.verdict.proved
    assert "no backward, costs F=" in answer.text()
    with pytest.raises(PipeschedError, match="f has no backward"):
        pipesched.optimize(Source("f.ps", text), p=2, backward="fused")


def test_an_answer_about_other_frozen_stages_proves_nothing() -> None:
    """A file with fewer or more frozen stages than the refutation, its times or its operations."""
    answer = json.loads(json.dumps(pipesched.optimize(Source("t.ps", SCHEDULE), p=4, mem_cap=2, costs="C=1").to_json()))
    whole = pipesched.verify(Source("answer.json", json.dumps(answer)))
    assert whole.ok and whole.verdict is not None and whole.verdict.proved
    for change in ("", "frozen s in 0 .. 1", "frozen s in 0 .. 3", "frozen s in 1 .. 3"):
        forged = {**answer, "source": answer["source"].replace("frozen s in 0 .. 2", change)}
        report = pipesched.verify(Source("answer.json", json.dumps(forged)))
        assert not report.ok or report.verdict is None or not report.verdict.proved, change


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"all_m": True}, "no lower bound for every m"),
    ],
)
def test_what_no_bound_covers_is_refused(more: dict[str, Any], why: str) -> None:
    """The refusal is by name, before the search."""
    with pytest.raises(PipeschedError, match="PS702") as refused:
        pipesched.optimize(Source("tuned.ps", SCHEDULE), p=4, **more)
    assert why in str(refused.value)


def test_a_cap_below_one_forward_is_named() -> None:
    """A stage without a backward holds an activation while its F runs."""
    answer = pipesched.optimize(Source("tuned.ps", SCHEDULE), p=4, mem_cap=["1/2", 1, 2, 2])
    assert answer.impossible and "F of stage 0 holds 1, over the cap of rank 0" in answer.reason
