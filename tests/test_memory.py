"""How much a rank holds: the running sum equals what a simulated run holds, instant by instant, at any costs."""

from __future__ import annotations

import random
import re
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipesched
from pipesched.analysis.memory import memory
from pipesched.model.ops import Op
from pipesched.model.release import Release
from pipesched.model.schedule import Schedule
from tests import simulate, strategies
from tests.simulate import rows

CALM = settings(derandomize=True, deadline=None, max_examples=120)
RULES = {
    "W": ("0", "1"),
    "I": ("1", "0"),
    "split:1/4": ("3/4", "1/4"),
    "split:0.5": ("1/2", "1/2"),
    "split:0": ("1", "0"),
    "torch": ("-3/5", "8/5"),
    "I=0.2,W=0.8": ("1/5", "4/5"),
    "I=-0.89,W=1.89": ("-89/100", "189/100"),
}
"""By rule: what I frees and what W frees of what F took. torch: 0.6 more is held after I (62 % measured)."""


def shares(rule: str) -> tuple[Fraction, Fraction]:
    at_input, at_weight = RULES[rule]
    return Fraction(at_input), Fraction(at_weight)


@CALM
@given(strategies.schedules(), st.sampled_from(sorted(RULES)), st.data())
def test_the_peak_is_the_most_that_any_instant_holds(schedule: Schedule, rule: str, data: st.DataObject) -> None:
    """For every rule and whatever the operations cost: the largest sum over the instants of a run, rank by rank."""
    costs = data.draw(strategies.costs(schedule.stages))
    played = simulate.run(schedule, rows(costs, schedule.stages))
    unit = Fraction(schedule.ranks, schedule.stages)
    expected = [stages * unit for stages in simulate.held(played, *shares(rule))]
    assert list(memory(schedule, Release.parse(rule)).peak) == expected


@CALM
@given(strategies.schedules(), st.sampled_from(sorted(RULES)))
def test_what_is_live_and_where_the_peak_is(schedule: Schedule, rule: str) -> None:
    """live(i): the stages and microbatches whose F has run and whose last release has not, by age.

    held at i is what they still weigh, and the peak is first reached at the operation that is named for it.
    """
    at_input, at_weight = shares(rule)
    found = memory(schedule, Release.parse(rule))
    unit = Fraction(schedule.ranks, schedule.stages)
    last = {Op.B} | ({Op.W} if at_weight else {Op.I})
    for rank, order in enumerate(simulate.orders_of(schedule)):
        levels = []
        for step in range(len(order)):
            past = order[: step + 1]
            freed = {(x.stage, x.microbatch) for x in past if x.op in last}
            halves = {(x.stage, x.microbatch) for x in past if x.op is Op.I}
            live = [(x.stage, x.microbatch) for x in past if x.op is Op.F and (x.stage, x.microbatch) not in freed]
            index = int(schedule.start[rank]) + step
            assert found.live(index) == live
            levels.append(sum((1 - at_input if key in halves else Fraction(1) for key in live), Fraction(0)) * unit)
            assert found.at(index) == levels[-1]
        if levels:
            assert found.peak_at[rank] == int(schedule.start[rank]) + levels.index(max(levels))
            assert found.peak[rank] == max(levels)


@CALM
@given(strategies.schedules(), st.sampled_from(sorted(RULES)), st.fractions(0, 6, max_denominator=4))
def test_the_first_operation_over_a_cap(schedule: Schedule, rule: str, cap: Fraction) -> None:
    """first_over is the first operation at which more than the cap is held; -1 exactly if the peak fits."""
    found = memory(schedule, Release.parse(rule))
    for rank in range(schedule.ranks):
        low, high = int(schedule.start[rank]), int(schedule.start[rank + 1])
        over = [i for i in range(low, high) if found.at(i) > cap]
        assert found.first_over(rank, cap) == (over[0] if over else -1)
        assert (found.peak[rank] <= cap) == (not over)


@pytest.mark.parametrize("seed", range(20))
def test_a_cap_is_an_error_exactly_where_a_rank_exceeds_it(seed: int) -> None:
    """PS501 for ranks whose peak is larger than their cap, with both numbers, the first three of them; the rest are
    counted. None at caps that are the peaks.
    """
    schedule = strategies.random_schedule(seed)
    peaks = memory(schedule, Release.parse("W")).peak
    assert not [d for d in pipesched.verify(schedule, mem_cap=list(peaks)).diagnostics if d.code == "PS501"]
    rng = random.Random(seed)
    caps = [max(Fraction(0), peak - rng.choice((0, 0, 1, Fraction(1, 3)))) for peak in peaks]
    found = [d for d in pipesched.verify(schedule, mem_cap=caps).diagnostics if d.code == "PS501"]
    told = [re.fullmatch(r"rank (\d+) holds (\S+) activations; its cap is (\S+)", d.message) for d in found]
    over = [(rank, peaks[rank], caps[rank]) for rank in range(schedule.ranks) if peaks[rank] > caps[rank]]
    assert [(int(x[1]), Fraction(x[2]), Fraction(x[3])) for x in told if x] == over[:3]
    assert [note for d in found for note in d.notes if "more of this kind" in note] == (
        [f"and {len(over) - 3} more of this kind"] if len(over) > 3 else []
    )


def test_one_cap_is_for_every_rank() -> None:
    """1F1B holds p - r microbatches on rank r, so a cap of 3 at p = 5 is exceeded on ranks 0 and 1."""
    report = pipesched.verify("1f1b", p=5, m=9, mem_cap=3)
    assert [d.message[:6] for d in report.diagnostics if d.code == "PS501"] == ["rank 0", "rank 1"]
    assert report.memory is not None and report.memory.cap == (Fraction(3),) * 5
    assert pipesched.verify("1f1b", p=5, m=9, mem_cap=5).ok
