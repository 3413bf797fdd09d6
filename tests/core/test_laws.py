"""Renumbering ranks does not change the verdict, times scale with the costs, and a peak is convex in what W frees."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import pipesched
from pipesched.analysis.holdings import memory
from pipesched.model.costs import Costs
from pipesched.model.ops import Compute
from pipesched.model.placement import Placement
from pipesched.model.release import Release
from pipesched.model.schedule import Schedule
from pipesched.report.report import Report
from tests.depth import deep
from tests.makers import strategies
from tests.oracles import simulate

CALM = settings(derandomize=True, deadline=None, max_examples=deep(10))


def codes(report: Report) -> list[str]:
    return [str(d.code) for d in report.diagnostics if d.severity == "error"]


@CALM
@given(strategies.SEEDS, st.booleans())
def test_ranks_have_no_order(seed: int, broken: bool) -> None:
    """Ranks numbered differently give the same verdict, makespan, codes and messages, and lists in the new order."""
    schedule = strategies.shuffled_schedule(seed) if broken else strategies.random_schedule(seed)
    new = list(range(schedule.ranks))
    random.Random(seed).shuffle(new)
    where = schedule.placement
    rank_of = np.array(new, dtype=np.int32)[where.rank_of]
    orders: list[list[Compute]] = [[] for _ in new]
    for rank, order in enumerate(simulate.orders_of(schedule)):
        orders[new[rank]] = order
    renamed = Schedule.from_orders(orders, Placement(rank_of, where.route_of, where.ranks), "renamed")
    one, other = pipesched.verify(schedule), pipesched.verify(renamed)
    assert sorted(codes(one)) == sorted(codes(other)) and one.parts.messages == other.parts.messages
    assert (one.parts.time is None) == (other.parts.time is None)
    if one.parts.time and other.parts.time:
        assert one.time.makespan == other.time.makespan
        for rank, there in enumerate(new):
            assert one.time.work[rank] == other.time.work[there]
            assert one.memory.peak[rank] == other.memory.peak[there]


@CALM
@given(strategies.schedules(), st.data())
def test_times_scale_with_the_costs_and_never_shrink(schedule: Schedule, data: st.DataObject) -> None:
    """With all costs times k, all times are k times as long. With a raised cost, no operation of the schedule ends
    earlier."""
    costs = data.draw(strategies.costs(schedule.stages))
    known = {key: list(row) for key, row in simulate.rows(costs, schedule.stages).items() if row is not None}
    factor = data.draw(st.sampled_from([Fraction(3), Fraction(1, 7)]))
    before = _makespan(schedule, known)
    assert _makespan(schedule, {key: [factor * x for x in row] for key, row in known.items()}) == factor * before
    key, stage = data.draw(st.sampled_from(sorted(known))), data.draw(st.integers(0, schedule.stages - 1))
    known[key][stage] += Fraction(1, 2)
    assert _makespan(schedule, known) >= before


def _makespan(schedule: Schedule, rows: dict[str, list[Fraction]]) -> Fraction:
    time = pipesched.verify(schedule, costs=Costs({key: tuple(row) for key, row in rows.items()})).time
    assert time is not None
    return time.makespan


@CALM
@given(strategies.schedules(), st.fractions(0, 1, max_denominator=9))
def test_the_peak_is_convex_in_what_w_frees(schedule: Schedule, share: Fraction) -> None:
    """split:0 is I, split:1 is W, and no peak is above the line between them."""
    at = {x: memory(schedule, Release.parse(f"split:{x}")).peak for x in (Fraction(0), share, Fraction(1))}
    assert at[Fraction(0)] == memory(schedule, Release.parse("I")).peak
    assert at[Fraction(1)] == memory(schedule, Release.parse("W")).peak
    for low, middle, high in zip(at[Fraction(0)], at[share], at[Fraction(1)], strict=True):
        assert middle <= (1 - share) * low + share * high


def test_one_rank_never_waits() -> None:
    """At p = 1 there are no messages, and the makespan is the work, whatever the latency."""
    for name in ("gpipe", "1f1b", "interleaved", "zb_h1", "zb_h2"):
        report = pipesched.verify(name, p=1, m=5, costs="F=2,I=3,W=5,C=7")
        assert report.ok and report.messages == 0 and report.time is not None
        assert list(report.time.work) == [report.time.makespan] and list(report.time.idle) == [0]


def test_the_same_input_gives_the_same_bytes() -> None:
    """Reports of right and broken schedules, as text and JSON, are equal in two processes with different hash seeds."""
    script = (
        "import json, pipesched; from tests.makers import strategies\n"
        f"for seed in range({deep(30, usual=10)}):\n"
        "    report = pipesched.verify(strategies.broken_schedule(seed))\n"
        "    print(report.text(), json.dumps(report.to_json()))\n"
    )
    digests = set()
    for seed in ("0", "4711"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, env=env, check=True)
        digests.add(hashlib.sha256(done.stdout).hexdigest())
    assert len(digests) == 1
