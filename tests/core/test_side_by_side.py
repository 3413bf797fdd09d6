"""Schedules that are verified together get the same verdicts as when `verify` runs at one size at a time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from pipesched.check import checks
from pipesched.check.rows import CheckCode
from pipesched.common import side_by_side
from pipesched.compile import Examination, Loaded, Options, examine, load, read
from pipesched.diagnostics import Diagnostic, PipeschedError
from pipesched.extension import Check
from pipesched.model.costs import Costs
from pipesched.model.release import Release
from pipesched.model.schedule import Schedule
from pipesched.support.source import Source
from pipesched.verbs.verify import verify, verify_all
from tests.depth import deep, in_usual_run

NAMES = ("1f1b", "gpipe", "interleaved", "zb_h1", "zb_v", "dualpipe", "chimera", "forward_only", "unet", "pipeoffload")


def same(made: list[Examination]) -> int:
    """Settle schedules together, compare with the report on each alone, and return the number of settled schedules."""
    alone = [examine(replace(one.loaded, schedule=replace(one.loaded.schedule)), one.options).report for one in made]
    side_by_side.settle(made)
    for one, expected in zip(made, alone, strict=True):
        assert str(one.report) == str(expected)
        assert one.report.to_json() == expected.to_json()
    return sum(bool(one.analysis.passed) for one in made)


def loaded(sizes: Iterator[tuple[str, Options]]) -> Iterator[tuple[Loaded, Options]]:
    for name, options in sizes:
        try:
            yield load(read(name), options), options
        except PipeschedError:
            continue


@pytest.mark.parametrize("name", NAMES)
def test_sizes_of_a_sweep_have_the_reports_of_each_alone(name: str) -> None:
    """The reports agree at all sizes and numbers of microbatches; a schedule that is no chain, or has copies, is
    examined alone."""
    sizes = [Options({"p": p, "m": m}) for p in (2, 3, 4) for m in (2, 3, 4, 12 if in_usual_run() else 16)]
    found = [examine(*one) for one in loaded((name, options) for options in sizes)]
    settled = same(found)
    assert settled < len(found) if name in ("unet", "pipeoffload") else settled > len(found) // 2
    assert [str(x) for x in verify_all([(read(name), x) for x in sizes])] == [str(verify(read(name), x)) for x in sizes]


def options(rng: random.Random, stages: int) -> Options:
    """Costs by stage or alike, few releases, so that many are of one kind; caps; models."""

    def cost() -> Fraction | tuple[Fraction, ...]:
        numbers = [Fraction(rng.randint(0, 5), rng.choice((1, 1, 2, 3))) for _ in range(stages)]
        return numbers[0] if rng.random() < 0.5 else tuple(numbers)

    given = rng.choice(((), ("F",), ("F", "B", "C"), ("I", "W", "C"), ("F", "FB", "M")))
    cap = (Fraction(rng.randint(1, 9)),) if rng.random() < 0.3 else None
    release = Release.parse(rng.choice(("W", "W", "split:1/3")))
    return Options(costs=Costs({key: cost() for key in given}), release=release, mem_cap=cap)


def harmed(rng: random.Random, schedule: Schedule) -> Schedule:
    """Two operations of a rank change places, or one has another stage or microbatch."""
    op, stage, microbatch = schedule.op.copy(), schedule.stage.copy(), schedule.microbatch.copy()
    i = rng.randrange(len(schedule))
    j = rng.choice(np.flatnonzero(schedule.rank == schedule.rank[i]).tolist())
    if (kind := rng.random()) < 0.6:
        for column in (op, stage, microbatch):
            column[[i, j]] = column[[j, i]]
    else:
        (stage if kind < 0.8 else microbatch)[i] += rng.choice((-1, 1))
    return replace(schedule, op=op, stage=stage, microbatch=microbatch)


@pytest.mark.parametrize("seed", range(deep(4)))
def test_random_orders_and_costs_have_the_reports_of_each_alone(seed: int) -> None:
    """Orders of several files, some with a mistake, at random sizes and costs."""
    rng, made = random.Random(seed), list[Examination]()
    for _ in range(40):
        sizes = Options({"p": rng.randint(1, 5), "m": rng.randint(1, 8)})
        for one, _ in loaded(iter([(rng.choice(NAMES), sizes)])):
            harm = rng.random() < 0.1
            order = replace(one, schedule=harmed(rng, one.schedule)) if harm else one
            made.append(examine(order, options(rng, one.schedule.stages)))
    assert same(made) > 0


def test_a_mistake_in_one_is_found_in_it_alone() -> None:
    """The other schedules are unchanged, and no verdict is settled."""
    good = [load(read("1f1b"), Options({"p": 4, "m": m})) for m in (4, 5, 6)]
    bad = replace(good[1], schedule=replace(good[1].schedule, op=np.roll(good[1].schedule.op, 1)))
    found = [examine(one, Options()) for one in (good[0], bad, good[2])]
    assert same(found) == 0
    assert [one.report.ok for one in found] == [True, False, True]


def test_an_operation_of_a_stage_that_is_another_schedules_is_out_of_range() -> None:
    """Side by side, stage p of the first schedule would be stage 0 of the second, and microbatch m a microbatch of a
    longer schedule."""
    first, second = (load(read("gpipe"), Options({"p": 2, "m": m})) for m in (4, 5))
    for name in ("stage", "microbatch"):
        column = getattr(first.schedule, name).copy()
        column[-1] += 4 if name == "microbatch" else 2
        wrong = replace(first, schedule=replace(first.schedule, **{name: column}))
        found = [examine(one, Options()) for one in (wrong, second)]
        assert same(found) == 0 and "out of range" in str(found[0].report)


def test_costs_that_leave_64_bits_together_are_examined_alone() -> None:
    """Each is within, all together are not."""
    large = Costs({"F": Fraction(10**13)})
    found = [examine(load(read("1f1b"), Options({"p": 8, "m": 64})), Options(costs=large)) for _ in range(20)]
    huge = [replace(one, options=Options(costs=Costs({"F": Fraction(10**14)}))) for one in found]
    assert same(found[:5]) == 5
    assert all(one.report.ok for one in huge) and same(huge) in (0, len(huge))


@pytest.mark.parametrize("table", ["ORDER_CHECKS", "PROGRAM_CHECKS"])
def test_a_check_that_a_sweep_does_not_know_is_run(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new check of the core finds in every size of a sweep what it finds in one; the sizes are still settled."""

    def first(subject: checks.Subject) -> Iterator[Diagnostic]:
        schedule = subject.analysis.schedule
        yield Diagnostic(CheckCode.IDLE_RANK, f"found at m = {schedule.microbatches}")

    monkeypatch.setattr(checks, table, (*getattr(checks, table), Check("a new one", ("PS999",), first)))
    sizes = [Options({"p": 3, "m": m}) for m in (4, 5, 6)]
    reports = verify_all([(read("1f1b"), size) for size in sizes])
    assert [[x.message for x in report.diagnostics] for report in reports] == [[f"found at m = {m}"] for m in (4, 5, 6)]


CLAIMS = (
    "peak(p - 1 - r) <= p and peak == p",
    "idle / makespan == (p - 1) / (m + p - 1) when tC == 0 and tF + tB > 0",
    "bubble == 1 - m * (tF + tB) / makespan and span_bubble <= bubble",
    "span_idle(r) <= idle(r) and abs(span - makespan) == makespan - span",
    "makespan // 2 + makespan % 2 >= span / 2 when not (m % 2 == 0 or p == 3)",
    "work(r) == (if r < 2 then m * tF + m * tB else m * (tF + tB))",
    "max(tF, tB, 1.5) >= min(tF, tB) - -1 / 2",
    "peak(r) == min(p - r, 2)",
    "m != 5",
    "idle * 1000000007 * 1000000007 >= 0",
    "work(r) / (m - 4) > 0",
    "twice(m) == 2 * m",
    "peak(r + m - 3) > 0",
)
"""Of 1F1B: the last four have no columns at some sizes."""


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_is_judged_for_many_sizes_as_for_each(claim: str) -> None:
    """Every size has the verdict and the explanation that it has by itself, whether the claim holds, is false, does not
    apply or has no value there. Most claims are judged for all sizes at once.
    """
    head, _, tail = read("1f1b").text.partition("require")
    text = f"{head}let twice(k) = 2 * k\nrequire{tail.partition('claim')[0]}claim {claim}\n"
    source = Source("own.ps", text)
    sizes = [Options({"p": p, "m": m}) for p in (2, 3, 4) for m in (3, 4, 5)]
    halves = Costs({"F": Fraction(3, 2), "B": Fraction(5, 3)})
    for costs in (None, halves):
        made = [examine(load(source, one), replace(one, costs=costs)) for one in sizes]
        assert same(made) == len(made)
        fresh = [examine(one.loaded, one.options) for one in made]
        side_by_side.settle(fresh)
        assert costs or claim in CLAIMS[-4:] or any("claims" in one.__dict__ for one in fresh)
