"""Measured times agree with the timeline: sleeping stages take the predicted makespan, and the faster schedule is
faster.

Few tests of the runtime look at a clock. Stages sleep, so that the clock and not the CPU decides.
On a busy machine a sleep lasts longer than it is told, so a step is compared with the machine's own pace: the same
order with each instruction's duration in this very step (`runtime/paced.py`). Messages come late there too, which
matters less in a slow step, so the best of a few steps counts, each slower than the one before.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, combinations

import pytest

import pipesched
from tests.depth import some
from tests.runtime import cases
from tests.runtime.harness import Ranks, ranks_of
from tests.runtime.paced import explained, measured
from tests.runtime.streams import SCHEDULES, stream_of

SIZES = ((4, 8), (8, 16))
TIMED = some(((4, 8, "uneven"), (4, 8, "unit"), (8, 16, "uneven")), 3)
TOLERANCE = 0.1
SLOWER = (1, 1, 2, 4, 8)  # how many times slower each try is; a quiet machine needs one

# Name -> seconds of a cost of 1; F, I and W of a rank's share of the model; how heavy each quarter of the model is.
COSTS = {
    "unit": (0.01, (1, 1, 1), (1, 1, 1, 1)),
    "uneven": (0.005, (1, 2, 1), (2, 1, 1, 1)),  # no two makespans are the same
}


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with ranks_of(max(p for p, _, _ in TIMED)) as made:
        yield made


def per_stage(stages: int, p: int, costs: str) -> list[list[float]]:
    """Return F, I and W of every stage, in units: a chunk has its share of a whole stage's cost."""
    _, base, quarters = COSTS[costs]
    return [[cost * quarters[4 * stage // stages] * p / stages for stage in range(stages)] for cost in base]


def predicted(name: str, p: int, m: int, costs: str) -> float:
    """Return the makespan in units."""
    lists = per_stage(stream_of(name, p=p, m=m).stages, p, costs)
    text = ",".join(f"{kind}=[{','.join(map(str, row))}]" for kind, row in zip("FIW", lists, strict=True))
    time = pipesched.verify(name, p=p, m=m, costs=text).time
    assert time is not None
    return float(time.makespan)


def ratio(ranks: Ranks, name: str, p: int, m: int, costs: str) -> float:
    """Return the ratio of a step to the time that its instructions explain: the least of some, until one is good
    enough."""
    stream = stream_of(name, p=p, m=m)
    stages = list(zip(*per_stage(stream.stages, p, costs), strict=True))
    least = float("inf")
    for slower in SLOWER:
        unit = slower * COSTS[costs][0]
        taken = ranks.run(p, cases.timed, stream, [tuple(unit * x for x in stage) for stage in stages])
        least = min(least, measured(taken) / explained(stream, taken))
        if least <= 1 + TOLERANCE:
            break
    return least


@pytest.mark.timed
@pytest.mark.parametrize(("p", "m", "costs"), TIMED)
def test_steps_take_the_predicted_time(ranks: Ranks, p: int, m: int, costs: str) -> None:
    """Each step is within 10 % of the time that its instructions explain, which at their costs is the makespan (below).

    So of two schedules that are 10 % apart the predicted one is faster.
    """
    makespan = {name: predicted(name, p, m, costs) for name in SCHEDULES}
    spent = {name: makespan[name] * ratio(ranks, name, p, m, costs) for name in SCHEDULES}
    for name in SCHEDULES:
        assert abs(spent[name] / makespan[name] - 1) <= TOLERANCE, (name, spent, makespan)
    for a, b in combinations(SCHEDULES, 2):
        fast, slow = sorted((a, b), key=makespan.__getitem__)
        if makespan[slow] > (1 + TOLERANCE) * makespan[fast]:
            assert spent[fast] < spent[slow], (fast, slow, spent, makespan)


@pytest.mark.timed
@pytest.mark.usefixtures("one_supervisor")
@pytest.mark.parametrize(
    ("name", "sizes", "costs", "without"),
    [
        ("mario", {"p": 2, "m": 4}, "F=1,B=2", ("1f1b", {"p": 2, "m": 4}, "F=1,B=2")),
        ("pipeoffload", {"p": 2, "m": 4}, "F=1,B=2,O=3", ("pipeoffload", {"p": 2, "m": 4}, "F=1,B=2,O=0")),
        ("seq1f1b", {"p": 2, "m": 4}, "F=1,B=2", ("1f1b", {"p": 2, "m": 2}, "F=2,B=4")),
    ],
)
def test_recomputation_offload_and_slices_take_the_predicted_time_and_memory(
    name: str, sizes: dict[str, int], costs: str, without: tuple[str, dict[str, int], str]
) -> None:
    """The time is within 10 % of the makespan, and further from that without R, copies or slices; the peak is exact."""
    other = pipesched.verify(without[0], **without[1], costs=without[2]).makespan
    least = float("inf")
    for slower in SLOWER[1:]:
        found = pipesched.run(name, **sizes, costs=costs, pace=20 * slower)
        time, peak = found.to_json()["time"], found.to_json()["peak"]
        assert peak["counted"] == peak["predicted"]
        assert abs(other / time["makespan_decimal"] - 1) > TOLERANCE
        least = min(least, abs(time["measured"] / time["predicted"] - 1))
        if least <= TOLERANCE:
            break
    assert least <= TOLERANCE


@pytest.mark.parametrize("costs", list(COSTS))
@pytest.mark.parametrize(("p", "m"), SIZES)
@pytest.mark.parametrize("name", SCHEDULES)
def test_instructions_that_take_their_costs_explain_the_makespan(name: str, p: int, m: int, costs: str) -> None:
    """The reference of a step is the verifier's prediction if every instruction takes its cost."""
    stream = stream_of(name, p=p, m=m)
    forward, for_input, for_weight = per_stage(stream.stages, p, costs)
    seconds = {"F": forward, "I": for_input, "W": for_weight}
    seconds["B"] = [a + b for a, b in zip(for_input, for_weight, strict=True)]
    taken = [
        [(0.0, sum(seconds[y.op][y.stage] for y in x.parts or (x,) if y.op in seconds), 0.0) for x in order]
        for order in stream.ranks
    ]
    ends = [list(accumulate(end for _, end, _ in order)) for order in taken]
    paced = [
        [(end - lasts, end, 0.0) for end, (_, lasts, _) in zip(times, order, strict=True)]
        for times, order in zip(ends, taken, strict=True)
    ]
    assert explained(stream, paced) == pytest.approx(predicted(name, p, m, costs))


def test_uneven_costs_tell_all_schedules_apart() -> None:
    """No two schedules have the same makespan at the uneven costs, so the order above means something."""
    for p, m in SIZES:
        assert len({predicted(name, p, m, "uneven") for name in SCHEDULES}) == len(SCHEDULES)
