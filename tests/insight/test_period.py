"""The period of an order is the largest ratio of a cycle in its kernel, and equals the growth of makespans in the
long run."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.diagnostics import PipeschedError
from pipesched.insight.period import Period, period
from pipesched.model.costs import Costs
from pipesched.model.ops import Compute, Op
from pipesched.model.schedule import Schedule
from pipesched.schedule_analysis import Analysis
from tests.depth import deep
from tests.makers.placements import linear
from tests.oracles.cycles import Edge, largest_ratio
from tests.oracles.simulate import rows, run

pytestmark = pytest.mark.quick

SCHEDULES = Path(__file__).parents[2] / "schedules"
NONE = {"gpipe", "gpipe_reversed", "looped_bfs", "terapipe", "unet"}  # all forwards come before all backwards
NONE |= {"pipeoffload"}  # copies to host memory


def of(name: str, costs: str, p: int, m: int) -> Period | None:
    return period(Analysis(pipesched.load(name, p=p, m=m), Costs.parse(costs)))


@pytest.mark.parametrize(
    ("name", "costs", "p", "each"),
    [
        ("1f1b", "F=1,B=2,C=0", 4, Fraction(3)),
        ("1f1b", "F=1,B=2,C=1", 4, Fraction(9, 2)),
        ("1f1b", "F=1,B=2,C=2", 8, Fraction(13, 2)),
        ("eager_1f1b", "F=1,B=2,C=2", 4, Fraction(24, 7)),
    ],
)
def test_formulas(name: str, costs: str, p: int, each: Fraction) -> None:
    """1F1B takes tF + tB + 2 (p - 1) tC / p for a microbatch, since p are in flight on rank 0; with 2p - 1 in flight it
    takes max(tF + tB, (p (tF + tB) + 2 (p - 1) tC) / (2p - 1)).
    """
    found = of(name, costs, p=p, m=16 * p)
    assert found is not None and found.each == each
    assert found.bubble == 1 - 3 / each


def kernel_of(warm: Sequence[int], cost: Sequence[dict[str, Fraction]], latency: Fraction) -> Fraction:
    """The largest ratio in the kernel F B of a linear pipeline; rank r has warm[r] more F than B before it."""
    p = len(warm)
    edges: list[Edge] = []
    for s in range(p):
        edges += [(2 * s, 2 * s + 1, cost[s]["F"], 0), (2 * s + 1, 2 * s, cost[s]["B"], 1)]
        if s:
            ahead = warm[s - 1] - warm[s]
            edges.append((2 * s - 2, 2 * s, cost[s - 1]["F"] + latency, ahead))
            edges.append((2 * s + 1, 2 * s - 1, cost[s]["B"] + latency, 0))
    return largest_ratio(2 * p, edges)


def test_equals_the_largest_ratio_of_a_cycle() -> None:
    """Orders with random numbers of forwards in the warm-up and random costs by stage, by another algorithm."""
    rng = random.Random(29)
    for _ in range(deep(30)):
        p = rng.randint(1, 5)
        warm = [*sorted((rng.randint(0, 6) for _ in range(p - 1)), reverse=True), 0]
        cost = [{"F": Fraction(rng.randint(1, 6)), "B": Fraction(rng.randint(1, 9))} for _ in range(p)]
        latency, m = Fraction(rng.randint(0, 4), 2), 70
        orders = []
        for r in range(p):
            f, b = ([Compute(op, r, i) for i in range(m)] for op in (Op.F, Op.B))
            steady = [x for i in range(m - warm[r]) for x in (f[warm[r] + i], b[i])]
            orders.append(f[: warm[r]] + steady + b[m - warm[r] :])
        given = {key: tuple(row[key] for row in cost) for key in "FB"}
        schedule = Schedule.from_orders(orders, linear(p, m))
        found = period(Analysis(schedule, Costs({**given, "C": latency})))
        assert found is not None
        assert found.each == kernel_of(warm, cost, latency), (warm, cost, latency)


@pytest.mark.parametrize("costs", ["", "F=2,I=3,W=2,C=1/2"])
def test_makespans_grow_by_it(costs: str) -> None:
    """Many more microbatches add their number times the period, by a slow simulation; a cycle may span several."""
    rng = random.Random(7)
    names = sorted({path.stem for path in SCHEDULES.glob("*.ps")} - {"mario"})  # recomputes
    for name in rng.sample(names, min(deep(6), len(names))):
        try:
            found = of(name, costs, p=4, m=48)
        except PipeschedError:
            continue
        if found is None:
            assert name in NONE | {"capped"}, name
            continue
        step = found.microbatches * found.spans
        step *= -(-24 // step)
        before, after = (
            max(run(schedule, rows(Costs.parse(costs), schedule.stages)).end.values())
            for schedule in (pipesched.load(name, p=4, m=m) for m in (48, 48 + step))
        )
        assert after - before == found.each * step, name


def test_idle_is_the_rest_of_the_period() -> None:
    """By rank: the period without the work of a microbatch; the busiest rank has no imbalance."""
    found = of("1f1b", "F=[1,2,4],B=3", p=3, m=30)
    assert found is not None
    assert found.each == 7 and found.ranks == (2,)
    assert list(found.idle) == list(found.imbalance) == [3, 2, 0]


@pytest.mark.parametrize("name", sorted(NONE - {"terapipe"}))
def test_without_a_kernel_there_is_none(name: str) -> None:
    """An order that runs all forwards before all backwards repeats no kernel."""
    assert of(name, "", p=4, m=32) is None


def test_why_says_the_period(capsys: pytest.CaptureFixture[str]) -> None:
    """At m = 8 the difference of two makespans is 3.25, and the period 24/7."""
    arguments = ["why", "eager_1f1b", "--p", "4", "--m", "8", "--cost", "F=1,B=2,C=2"]
    assert main(arguments) == 0
    said = "period: each further microbatch adds 24/7 to the makespan, and 3/7 to the idle time of rank 0; "
    assert said + "a cycle of waits through ranks 0 to 3 takes 24 for 7 microbatches" in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["growth"]["makespan"] == "13/4"
    assert value["period"]["period"] == "24/7" and value["period"]["bubble"] == "1/8"
    assert main(["why", "gpipe", "--p", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["period"] is None
