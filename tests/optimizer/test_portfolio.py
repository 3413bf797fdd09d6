"""At every cap that allows a schedule, heuristics find one that is at least as good as the published schedules."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest

from pipesched.analysis.dependencies import Dependencies
from pipesched.analysis.holdings import memory
from pipesched.analysis.idle import idle
from pipesched.analysis.timeline import timeline
from pipesched.model.costs import Costs
from pipesched.model.placement import Placement
from pipesched.model.release import AT_W, Release
from pipesched.optimizer.proof.meetings import meetings
from pipesched.optimizer.proof.problem import problem as checked
from pipesched.optimizer.solve import convert
from pipesched.optimizer.solve.bounds.least_cap import least_cap
from pipesched.optimizer.solve.candidates import Pool
from pipesched.optimizer.solve.instance import Instance
from pipesched.optimizer.solve.portfolio import orders
from pipesched.optimizer.solve.portfolio.banker import one_by_one
from pipesched.optimizer.solve.portfolio.justify import Justifier
from pipesched.optimizer.solve.portfolio.list_scheduling import listed, listings, policies
from pipesched.optimizer.solve.portfolio.local_search import Search
from pipesched.optimizer.solve.portfolio.repeating import blocks, building_blocks, patterns, slots
from pipesched.optimizer.solve.portfolio.zero_bubble import zero_bubble
from pipesched.optimizer.solve.problem import Orders, Problem
from pipesched.optimizer.solve.reductions import coarsened
from pipesched.optimizer.solve.search.unrolled import unrolled
from tests.bench.ablation import MEMBERS, Member, target
from tests.depth import deep, some
from tests.makers.instances import problem_of
from tests.oracles import brute

HERE = Path(__file__).parents[1]
PLACEMENTS = ("linear", "loop", "vee", "two")
RULES = ("W", "I", "split:2/3", "torch")


def table(kind: str, ranks: int) -> list[list[int]]:
    line = list(range(ranks))
    one = {"linear": line, "loop": line * 2, "vee": line + line[::-1], "two": line}[kind]
    return [one, one[::-1]] if kind == "two" else [one]


def instance(
    kind: str,
    ranks: int,
    microbatches: int,
    caps: Sequence[Fraction] | None = None,
    costs: str = "",
    release: Release = AT_W,
    *,
    fused: bool = False,
    objective: str = "makespan",
) -> Instance:
    rank_of = np.array(table(kind, ranks), dtype=np.int32)
    routes = np.sort(np.arange(microbatches) % len(rank_of)).astype(np.int32)
    names = ("down", "up")[: len(rank_of)]
    placement = Placement(rank_of, routes, ranks, names)
    return Instance(placement, Costs.parse(costs), release, tuple(caps) if caps else None, fused, objective)


def measured(asked: Instance, problem: Problem, found: Orders) -> Fraction:
    """Return the objective by the ordinary analysis; fails if the order deadlocks or holds too much."""
    schedule = convert.to_schedule(problem, found)
    ticks = asked.costs.ticks(schedule.stages)
    times = timeline(schedule, Dependencies.of(schedule), ticks)
    assert times.finished
    if asked.caps is not None:
        held = memory(schedule, asked.release, asked.costs.sizes(schedule.stages)).peak
        assert all(peak <= cap for peak, cap in zip(held, asked.caps, strict=True))
    spent = idle(schedule, times, ticks)
    return spent.makespan if asked.objective == "makespan" else spent.span


@pytest.mark.parametrize("release", RULES)
@pytest.mark.parametrize("kind", PLACEMENTS)
def test_what_comes_is_a_schedule_and_better_each_time(kind: str, release: str) -> None:
    """Every order finishes, keeps the caps and beats all before it, by the ordinary analysis."""
    for fused in (False, True):
        rule = Release.parse(release)
        asked = instance(
            kind, 3, 5, [Fraction(4), Fraction(3), Fraction(7, 2)], "F=3,I=[4,3,2],W=2,C=1", rule, fused=fused
        )
        if kind in ("loop", "vee"):
            asked = instance(
                kind, 3, 5, [Fraction(4), Fraction(3), Fraction(7, 2)], "F=3,I=4,W=2,C=1", rule, fused=fused
            )
        problem = asked.problem()
        values = [measured(asked, problem, found) for _, found in orders(problem, deep(12_000))]
        assert values and all(better < worse for worse, better in pairwise(values))


@pytest.mark.parametrize("kind", ["linear", "vee"])
def test_few_microbatches_unrolled_are_a_schedule(kind: str) -> None:
    """Every order of few microbatches that is unrolled finishes and keeps the caps, by the ordinary analysis; from one
    microbatch at a time, the best is shorter by a third.
    """
    asked = instance(kind, 2, 9, [Fraction(2)] * 2, "F=2,I=3,W=1,C=1")
    problem = asked.problem()
    pool = Pool(problem)
    pool.offer("first", one_by_one(problem))
    before = measured(asked, problem, pool.entries[0][2])
    found = (orders for _, orders in unrolled(pool, 0, "cadical") if orders is not None)
    assert min(measured(asked, problem, orders) for orders in islice(found, 2)) < before * 2 / 3


@pytest.mark.parametrize("seed", range(deep(45)))
def test_there_is_an_order_exactly_if_there_is_a_schedule(seed: int) -> None:
    """No order if no schedule keeps the caps; otherwise one, and none better than the best."""
    x = brute.random_instance(seed, microbatches=2)
    problem = problem_of(x)
    best = brute.optimum(x)
    values = [convert.value(problem, found) for _, found in orders(problem, 50_000 if seed % 3 == 0 else 0)]
    assert bool(values) == (best is not None)
    assert all(value is not None and best is not None and value >= best for value in values)


@pytest.mark.parametrize("ranks", range(2, 4 + 2 * deep(1), max(1, 3 - deep(1))))
@pytest.mark.parametrize("kind", PLACEMENTS)
def test_no_cap_from_the_least_up_brings_a_list_schedule_to_a_stop(kind: str, ranks: int) -> None:
    """For any urgency, and any room above the least cap, list scheduling completes."""
    for release in RULES:
        plain = instance(kind, ranks, ranks + 2, release=Release.parse(release)).problem()
        least = least_cap(plain)
        grain = int(plain.takes.max()) // 2
        for more in range(4):
            uneven = np.arange(ranks) * more % 3
            caps = [Fraction(int(x)) * plain.part for x in least + grain * (more + uneven)]
            asked = instance(kind, ranks, ranks + 2, caps, release=Release.parse(release))
            problem = asked.problem()
            for _, key in some(policies(problem), 6):
                found = listed(problem, key)
                assert found is not None
                measured(asked, problem, found)


@pytest.mark.parametrize("cap", [1, 2])
@pytest.mark.parametrize("row", range(0, 12, max(1, 4 - deep(1))))
def test_not_above_the_published_heuristic(row: int, cap: int) -> None:
    """On the published instances of the zero-bubble paper the span is not above the span of the paper's schedules."""
    rows = json.loads((HERE / "data" / "zb_iclr_table5_6.json").read_text("utf-8"))["rows"]
    x = rows[row]
    times = {key: round(x[f"T_{name}"] * 1000) for key, name in (("F", "F"), ("I", "B"), ("W", "W"), ("C", "comm"))}
    text = ",".join(f"{key}={time}" for key, time in times.items())
    rule = Release.parse(f"split:{Fraction(-x['mem_W'], x['mem_F'])}")
    caps = [Fraction(cap * x["p"])] * x["p"]
    asked = instance("linear", x["p"], x["m"], caps, text, rule, objective="span")
    problem = asked.problem()
    found = [orders for orders in zero_bubble(problem) if convert.value(problem, orders[1]) is not None]
    best = min(found, key=lambda entry: convert.value(problem, entry[1]) or 0)[1]
    published = [x["cost_microsec"][f"zb-{cap}p"]] + ([x["cost_microsec"]["zb-h1"]] if cap == 1 else [])
    assert measured(asked, problem, best) <= min(published)


@pytest.mark.parametrize(("cap", "costs", "published"), [(2, "", 59), (3, "", 53), (2, "F=3,I=4,W=2", 226)])
def test_blocks_pushed_together_are_not_worse_than_the_published_ones(cap: int, costs: str, published: int) -> None:
    """At p=4, m=8 the blocks of V-Min and V-Half, pushed together, take at most their published makespans at their
    memory."""
    asked = instance("vee", 4, 8, [Fraction(cap)] * 4, costs)
    problem = asked.problem()
    justifier = Justifier(problem)
    fit = [found for _, found in building_blocks(problem) if convert.value(problem, found) is not None]
    assert min(measured(asked, problem, justifier.push(found)) for found in fit) <= published


@pytest.mark.parametrize("ranks", [2, 3, 4, 6, 7][: 3 + deep(1)])
def test_a_block_never_meets_itself(ranks: int) -> None:
    """Run as early as possible, it ends no later than its last slot; once filled, it holds the stated amount."""
    problem = instance("vee", ranks, 4 * ranks).problem()
    for made in blocks(ranks):
        at = slots(problem, made)
        found = convert.by_start(problem, at)
        value = convert.value(problem, found)
        assert value is not None and value <= int(at.max()) + 1 - int(at.min())
        assert convert.peak(problem, found).max() == made.chunks * problem.takes.max()


@pytest.mark.parametrize("seed", range(deep(15)))
def test_pushing_loses_nothing(seed: int) -> None:
    """A sequence that is pushed forward and backward is still within the caps, complete, and not longer."""
    x = brute.random_instance(seed, ranks=4, microbatches=6)
    problem = problem_of(x)
    justifier = Justifier(problem)
    for _, found in islice(listings(problem), 12):
        before, after = convert.value(problem, found), convert.value(problem, justifier.push(found))
        assert before is not None and after is not None and after <= before


@pytest.mark.parametrize("seed", range(60))
def test_patterns_are_whole(seed: int) -> None:
    """A pattern has every operation once, each sequence in order, for any placement."""
    problem = problem_of(brute.random_instance(seed, ranks=4, microbatches=6))
    for _, found in islice(patterns(problem), 14):
        assert sorted(x for order in found for x in order) == list(range(problem.operations))
        assert all((np.diff(problem.index[row]) == 1).all() for row in by_sequence(problem, found))


def by_sequence(problem: Problem, found: Orders) -> Iterator[list[int]]:
    for order in found:
        for q in sorted({int(problem.sequence[x]) for x in order}):
            yield [x for x in order if problem.sequence[x] == q]


@pytest.mark.parametrize("kind", PLACEMENTS)
def test_local_search_stays_among_the_schedules_and_repeats_itself(kind: str) -> None:
    """Every state of a walk is within the caps; the same seed and steps give the same result."""
    caps = [Fraction(3)] * 4
    asked = instance(kind, 4, 8, caps, "F=2,I=3,W=2,C=1")
    problem = asked.problem()
    begin = next(iter(orders(problem, 0)))[1]
    walks = [Search(problem, begin, seed=7) for _ in range(2)]
    for walk in walks:
        reached = list(walk.steps(60_000, 3.0, 0.1))
        assert measured(asked, problem, walk.orders) == problem.time(walk.now)
        assert measured(asked, problem, walk.best) == problem.time(walk.value) == problem.time(reached[-1])
    assert walks[0].orders == walks[1].orders and walks[0].best == walks[1].best
    assert walks[0].value < measured(asked, problem, begin) * problem.scale


@pytest.mark.parametrize("objective", ["makespan", "span"])
@pytest.mark.parametrize("seed", range(20))
def test_local_search_knows_the_time_of_every_order_it_takes(seed: int, objective: str) -> None:
    """After every move the objective is that of a run of the orders, where operations may take no time."""
    made = problem_of(brute.random_instance(seed, ranks=4, microbatches=5))
    if objective == "span" and made.placement.routes > 1:
        pytest.skip("a placement with two routes has no span")
    rng = np.random.default_rng(seed)
    duration, cap = made.duration * rng.integers(0, 3, made.sequences), np.maximum(made.cap, least_cap(made))
    problem = replace(made, objective=objective, duration=duration, cap=cap)
    walk = Search(problem, one_by_one(problem), seed=seed)
    for _ in range(40):
        list(walk.steps(100, 3.0, 1.0))
        assert convert.value(problem, walk.orders) == walk.now
        assert convert.value(problem, walk.best) == walk.value


@pytest.mark.parametrize("ticks", [1, 2, 3, 5, 7, 100])
def test_a_coarse_clock(ticks: int) -> None:
    """Durations change by at most half a multiple, none above 0 vanishes, and memory is unchanged."""
    asked = instance("linear", 4, 6, [Fraction(3)] * 4, "F=[10,12,0,7],I=12,W=3,C=2", Release.parse("split:1/2"))
    problem = asked.problem()
    coarse = coarsened(problem, ticks)
    assert ((coarse.duration > 0) == (problem.duration > 0)).all()
    off = np.abs(coarse.duration * ticks - problem.duration)
    assert (off <= np.where(coarse.duration > 1, ticks / 2, max(ticks - 1, 0))).all()
    assert (np.abs(coarse.lag * ticks - problem.lag) <= ticks / 2).all()
    for _, found in orders(coarse, 0):
        measured(asked, problem, found)


@pytest.mark.parametrize("seed", range(60))
def test_one_by_one_needs_least(seed: int) -> None:
    """A schedule with one microbatch at a time holds the least memory that any schedule must hold."""
    problem = problem_of(brute.random_instance(seed, ranks=4, microbatches=4))
    found = one_by_one(problem)
    assert convert.run(problem, found) is not None
    assert (convert.peak(problem, found) <= least_cap(problem)).all()


@pytest.mark.parametrize("kind", PLACEMENTS)
def test_a_pattern_holds_no_more_with_more_microbatches(kind: str) -> None:
    """Once it repeats, memory stays constant; and its bubble does not grow if its period is the work."""
    few, many = (instance(kind, 3, m).problem() for m in (40, 80))
    work = int(few.work.max())
    for (_, one), (_, two) in islice(zip(patterns(few), patterns(many), strict=True), 0, 70, 7):
        assert (convert.peak(few, one) == convert.peak(many, two)).all()
        short, long = convert.value(few, one), convert.value(many, two)
        assert short is not None and long is not None and long - short == work


@pytest.mark.parametrize("ranks", range(2, 5 + deep(1)))
def test_the_zero_bubble_heuristic_meets_the_bound_of_meetings(ranks: int) -> None:
    """Unit costs and few microbatches in flight: no schedule is below the bound, and the order meets it if the last
    trip is not a whole one.
    """
    for room in range(2, (2 * ranks + 2) // 3 + 1):
        for microbatches in some(range(room + 1, 4 * room + 3), 3):
            asked = instance("linear", ranks, microbatches, [Fraction(room)] * ranks, "F=1,I=1,W=1")
            problem = asked.problem()
            justifier = Justifier(problem)
            found = [orders for _, plain in zero_bubble(problem) for orders in (plain, justifier.push(plain))]
            bound, _ = meetings(checked(asked))
            assert bound
            value = min(measured(asked, problem, orders) for orders in found)
            assert value >= bound
            assert value == bound or (microbatches - 1) % room == 0


@pytest.mark.parametrize("member", MEMBERS.values(), ids=lambda member: member.name)
def test_what_an_ablation_leaves_out_is_there(member: Member) -> None:
    """The table of `bench/ablation.py` names functions that the optimizer calls."""
    for path in (*member.where, *filter(None, [member.seen])):
        assert callable(getattr(*target(path)))
