"""The makespan of an order whose times vary: each draw is a run of its own, and the slack of a message is exact."""

from __future__ import annotations

import json
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

import pipesched
from pipesched.analysis.lists import Lists, run
from pipesched.analysis.timeline import entries
from pipesched.compile import Options, examine, load
from pipesched.diagnostics import PipeschedError
from pipesched.examine import Examination
from pipesched.insight import jitter
from pipesched.library.assets import asset
from pipesched.library.inputs import read
from pipesched.model.costs import Costs
from tests.depth import deep

SCHEMA = Draft202012Validator(json.loads(asset("emit", "report.schema.json").read_text("utf-8")))


def examined(name: str, share: str = "5%", costs: Any = None, **sizes: int) -> Examination:
    asked = Options(sizes, costs=costs).owning(jitter.Jittered(jitter.deviation(share)))
    return examine(load(read(name), asked), asked)


def test_quantiles_are_those_of_runs_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The drawn costs, given by stage and microbatch, have the same makespan, and so the same quantiles."""
    drawn: list[Any] = []
    whole = jitter._drawn

    def kept(*given: Any) -> Any:
        drawn.append(whole(*given))
        return drawn[-1]

    monkeypatch.setattr(jitter, "_drawn", kept)
    made = examined("1f1b", p=3, m=5)
    ends, finer = jitter.makespans(made.analysis, 0.2, deep(60))
    schedule, alone = made.analysis.schedule, []
    for times in drawn[0]:
        by = {(op.op.name, op.stage, op.microbatch): int(time) for op, time in zip(schedule, times, strict=True)}
        rows = {
            kind: [[by[kind, stage, i] for i in range(schedule.microbatches)] for stage in range(schedule.stages)]
            for kind in "FB"
        }
        text = ",".join(f"{kind}={json.dumps(row, separators=(',', ':'))}" for kind, row in rows.items())
        alone.append(pipesched.verify("1f1b", p=3, m=5, costs=text).makespan)
    assert sorted(alone) == ends.tolist()
    assert len(set(alone)) > len(alone) // 2
    assert finer == 1000


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("zb_v", {"p": 4, "m": 8}),
        ("interleaved", {"p": 4, "m": 8, "v": 2}),
        ("dualpipe", {"p": 4, "m": 8}),
        ("unet", {"p": 4, "m": 8}),
        ("pipeoffload", {"p": 4, "m": 8}),
    ],
)
def test_no_deviation_is_the_makespan(name: str, sizes: dict[str, int]) -> None:
    """With and without overlaps, further inputs and copies; and with a deviation half of the draws are longer."""
    made = examined(name, "0", **sizes)
    none = jitter.jitter(made)
    assert none is not None and none.p50 == none.p95 == made.analysis.makespan
    some = jitter.jitter(examined(name, "10%", **sizes))
    assert some is not None and made.analysis.makespan < some.p50 < some.p95
    assert some == jitter.jitter(examined(name, "10%", **sizes))


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("1f1b", {"p": 3, "m": 4}),
        ("zb_v", {"p": 3, "m": 6}),
        ("unet", {"p": 4, "m": 4}),
        ("pipeoffload", {"p": 2, "m": 4}),
    ],
)
def test_slack_is_how_late_one_message_may_be(name: str, sizes: dict[str, int]) -> None:
    """A message that is late by its slack leaves the end unchanged; one tick more delays the end by a tick."""
    costs = Costs({"C": Fraction(1)})
    made = examined(name, costs=costs, **sizes).analysis
    _, cost, cut, (consumer, producer, delay) = entries(
        made.schedule, made.dependencies, made.ticks, jitter._copies(made)
    )
    room = jitter.slack(made)
    ends = int(run(Lists.of(cost, cut, (consumer, producer, delay)))[0].max())
    for message in range(len(room)):
        for late, more in ((room[message], 0), (room[message] + 1, 1)):
            delayed = delay.astype(np.int64)
            delayed[message] += late
            assert run(Lists.of(cost, cut, (consumer, producer, delayed)))[0].max() == ends + more
    assert (room == 0).any() and (room > 0).any() and (room >= 0).all()


def test_the_report_says_it() -> None:
    """In text, in one line a size and in JSON; the draws and their distribution are beside the numbers."""
    report = pipesched.verify("zb_v", p=4, m=8, jitter="5%")
    found = report.jitter
    assert found.draws == 1000 and found.share == Fraction(1, 20)
    text = str(report)
    assert f"makespan {float(found.p50):.4g} in half of 1,000 draws" in text and "standard deviation 5 %" in text
    assert "33 of 96 messages have no slack" in text
    SCHEMA.validate(report.to_json())
    links = report.to_json()["jitter"]["slack"]
    assert {(link["from"], link["to"]) for link in links} == {
        (a, a + d) for a in range(4) for d in (1, -1) if 0 <= a + d < 4
    }


def test_a_large_order_has_fewer_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as the limit of slots takes, and the text has their number."""
    monkeypatch.setattr(jitter, "MOST", 64 * 7)
    made = jitter.jitter(examined("1f1b", p=4, m=8))
    assert made is not None and made.draws == 7 and "7 draws" in made.lines()[0]


def test_an_order_that_never_ends_has_none(tmp_path: Any) -> None:
    path = tmp_path / "stuck.csv"
    path.write_text("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n")
    report = pipesched.verify(path, jitter="5%")
    assert not report.ok and "jitter" not in report.to_json()


@pytest.mark.parametrize("text", ["x", "-1%", "101%", "1/0", "nan", "5%%", ""])
def test_a_wrong_deviation_is_refused(text: str) -> None:
    with pytest.raises(PipeschedError, match="jitter"):
        pipesched.verify("1f1b", p=2, jitter=text)


def test_quantiles_are_the_least_that_so_many_do_not_exceed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quantiles of 20 draws are the 10th and the 19th."""
    monkeypatch.setattr(jitter, "MOST", 16 * 20)
    made = examined("1f1b", p=2, m=4)
    ends, finer = jitter.makespans(made.analysis, 0.05)
    found = jitter.jitter(made)
    assert found is not None and len(ends) == 20 and ceil(0.95 * 20) == 19
    assert (found.p50, found.p95) == tuple(Fraction(int(ends[at]), finer) for at in (9, 18))
