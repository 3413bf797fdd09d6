"""The memory of a rank, a running sum, equals the memory in a simulated run at every instant and for any costs."""

from __future__ import annotations

import random
import re
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipesched
from pipesched.analysis.holdings import memory
from pipesched.model.ops import Op
from pipesched.model.release import Release
from pipesched.model.schedule import Schedule
from pipesched.support.source import Source
from tests.depth import deep
from tests.makers import strategies
from tests.oracles import simulate
from tests.oracles.simulate import rows

CALM = settings(derandomize=True, deadline=None, max_examples=deep(15))
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
    """For every release rule, costs and sizes of stages: the largest sum over the instants of a run, rank by rank."""
    costs = data.draw(strategies.costs(schedule.stages))
    sizes = data.draw(st.none() | strategies.sizes(schedule.stages))
    played = simulate.run(schedule, rows(costs, schedule.stages))
    unit = Fraction(schedule.ranks, schedule.stages)
    expected = [stages * unit for stages in simulate.held(played, *shares(rule), sizes)]
    assert list(memory(schedule, Release.parse(rule), sizes).peak) == expected


def test_two_caps_are_not_those_of_four_ranks() -> None:
    """A cap is for all ranks, or each rank has its own."""
    (found,) = pipesched.verify("1f1b", p=4, m=4, mem_cap=[1, 2]).diagnostics
    assert found.code == "PS225" and found.message == "2 caps for 4 ranks"


def test_an_f_that_is_run_again_is_live_while_it_runs() -> None:
    """With K = 0 it holds nothing after its end, and its R takes it back."""
    schedule = pipesched.load(Source("-", "rank 0: F0.0 F0.1 R0.1 B0.1 R0.0 B0.0\n"))
    found = memory(schedule, Release.parse("W"))
    live = {0: [(0, 0)], 1: [(0, 1)], 2: [(0, 1)], 4: [(0, 0)]}
    assert {i: found.live(i) for i in live} == live


@CALM
@given(strategies.schedules(), st.sampled_from(sorted(RULES)), st.data())
def test_what_is_live_and_where_the_peak_is(schedule: Schedule, rule: str, data: st.DataObject) -> None:
    """live(i): the stages and microbatches whose F has run and whose last release has not, by age, if their size is not
    0.

    held at i is their remaining size, and the peak is first reached at the operation named.
    """
    at_input, at_weight = shares(rule)
    sizes = data.draw(strategies.sizes(schedule.stages))
    found = memory(schedule, Release.parse(rule), sizes)
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
            assert found.live(index) == [key for key in live if sizes[key[0]]]
            weights = [sizes[key[0]] * (1 - at_input if key in halves else 1) for key in live]
            levels.append(sum(weights, Fraction(0)) * unit)
            assert found.at(index) == levels[-1]
        if levels:
            assert found.peak_at[rank] == int(schedule.start[rank]) + levels.index(max(levels))
            assert found.peak[rank] == max(levels)


@CALM
@given(strategies.schedules(), st.sampled_from(sorted(RULES)), st.fractions(0, 6, max_denominator=4), st.data())
def test_the_first_operation_over_a_cap(schedule: Schedule, rule: str, cap: Fraction, data: st.DataObject) -> None:
    """first_over is the first operation at which more than the cap is held; -1 exactly if the peak fits."""
    found = memory(schedule, Release.parse(rule), data.draw(st.none() | strategies.sizes(schedule.stages)))
    for rank in range(schedule.ranks):
        low, high = int(schedule.start[rank]), int(schedule.start[rank + 1])
        over = [i for i in range(low, high) if found.at(i) > cap]
        assert found.first_over(rank, cap) == (over[0] if over else -1)
        assert (found.peak[rank] <= cap) == (not over)


@pytest.mark.parametrize("seed", range(deep(20)))
def test_a_cap_is_an_error_exactly_where_a_rank_exceeds_it(seed: int) -> None:
    """PS501 for ranks whose peak exceeds their cap, with both numbers, for the three furthest over it; the rest are
    counted. None if the caps are the peaks.
    """
    schedule = strategies.random_schedule(seed)
    peaks = memory(schedule, Release.parse("W")).peak
    assert not [d for d in pipesched.verify(schedule, mem_cap=list(peaks)).diagnostics if d.code == "PS501"]
    rng = random.Random(seed)
    caps = [max(Fraction(0), peak - rng.choice((0, 0, 1, Fraction(1, 3)))) for peak in peaks]
    found = [d for d in pipesched.verify(schedule, mem_cap=caps).diagnostics if d.code == "PS501"]
    told = [re.fullmatch(r"rank (\d+) holds (\S+) activations; its cap is (\S+)", d.message) for d in found]
    over = [(rank, peaks[rank], caps[rank]) for rank in range(schedule.ranks) if peaks[rank] > caps[rank]]
    assert [(int(x[1]), Fraction(x[2]), Fraction(x[3])) for x in told if x] == sorted(
        over, key=lambda x: (x[2] - x[1], x[0])
    )[:3]
    assert [note for d in found for note in d.notes if "more of this kind" in note] == (
        [f"and {len(over) - 3} more of this kind"] if len(over) > 3 else []
    )


@pytest.mark.parametrize("rule", ["split:3/2", "split:2", "split:-1/2", "I=1/2,W=1", "split:"])
def test_a_rule_that_frees_too_much_is_refused(rule: str) -> None:
    """A share is between 0 and 1, and two named shares sum to 1."""
    with pytest.raises(pipesched.PipeschedError, match="PS225"):
        Release.parse(rule)


def test_one_cap_is_for_every_rank() -> None:
    """1F1B holds p - r microbatches on rank r, so a cap of 3 at p = 5 is exceeded on ranks 0 and 1."""
    report = pipesched.verify("1f1b", p=5, m=9, mem_cap=3)
    assert [d.message[:6] for d in report.diagnostics if d.code == "PS501"] == ["rank 0", "rank 1"]
    assert report.memory is not None and report.memory.cap == (Fraction(3),) * 5
    assert pipesched.verify("1f1b", p=5, m=9, mem_cap=5).ok


def test_a_stage_of_any_size_counts_its_own() -> None:
    """1F1B at p = 4: rank r holds p - r of its stage, each M times an even one; also with costs in the file."""
    sizes = [Fraction(0), Fraction(1, 2), Fraction(1), Fraction(3)]
    text = pipesched.load("1f1b", p=4, m=6)
    for report in (
        pipesched.verify(text, costs="M=[0,1/2,1,3]"),
        pipesched.verify(Source("x.ps", HEAVY), p=4),
        pipesched.verify(Source("x.ps", HEAVY.replace("M = [0, 1 / 2, 1, 3]", "M = 9")), p=4, costs="M=[0,1/2,1,3]"),
    ):
        assert report.memory is not None and report.time is not None
        assert list(report.memory.peak) == [(4 - r) * sizes[r] for r in range(4)]
        assert report.time.makespan == (6 + 3) * 3
        assert report.to_json()["time"]["costs"]["M"] == [0, "1/2", 1, 3]  # type: ignore[index]


HEAVY = """\
schedule heavy(p, m = 6)
stage s in 0 .. p on rank s
costs M = [0, 1 / 2, 1, 3]
rank r { let w = min(p - 1 - r, m)  repeat w { F }  repeat m - w { F B }  repeat w { B } }
claim peak(0) == 0 and peak(1) == 3 / 2 and peak == 3
claim peak(r) == (p - r) * tM
"""


def test_a_claim_about_tM_is_not_about_uneven_stages() -> None:
    """tM is a number if all stages hold the same; otherwise a claim that names it has not failed, and others are
    judged.
    """
    claims = [claim.holds for claim in pipesched.verify(Source("x.ps", HEAVY), p=4).claims]
    assert claims == [True, None]
    report = pipesched.verify(Source("x.ps", HEAVY), p=4, costs="M=5/3")
    assert [claim.holds for claim in report.claims] == [False, True]


def test_what_is_held_of_uneven_stages_is_told() -> None:
    """PS501 counts by stage, and names M of the held stages that are not even."""
    report = pipesched.verify("interleaved", p=2, v=2, m=4, mem_cap=1, costs="M=[1,0,1,5/2]")
    even, uneven = [d for d in report.diagnostics if d.code == "PS501"]
    assert even.message == "rank 0 holds 2.5 activations; its cap is 1"
    assert even.notes == ("held at the peak (stage.microbatch): 0.0 0.1 2.0 2.1 0.2", "release rule W")
    assert uneven.message == "rank 1 holds 1.25 activations; its cap is 1"
    assert uneven.notes == (
        "held at the peak (stage.microbatch): 3.0",
        "M, the memory of one F: 2.5 on stage 3",
        "release rule W",
    )


@pytest.mark.parametrize(
    ("costs", "release"),
    [
        ("M=[1/999999937,999999/999999929]", "W"),
        ("M=999999999999999", "W"),
        ("M=[1,1/999999937]", "split:1/999999929"),
        ("M=1", "I=-99999999999.123456789,W=100000000000.123456789"),
    ],
)
def test_sizes_too_fine_for_exact_sums_are_refused(costs: str, release: str) -> None:
    """The command reports an error rather than a rounded peak, for a single size or a sum of thousands."""
    report = pipesched.verify("1f1b", p=2, m=3000, costs=costs, release=release)
    assert [d.message for d in report.diagnostics if "64 bits" in d.message] and not report.ok
