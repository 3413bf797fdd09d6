"""When times vary, the makespan of each draw equals that of a separate run, and the slack of a message is exact."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from jsonschema import Draft202012Validator

import pipesched
from pipesched.analysis.lists import Lists, run
from pipesched.analysis.timeline import entries
from pipesched.common.values import deviation
from pipesched.compile import Options, examine, load
from pipesched.diagnostics import PipeschedError
from pipesched.examine import Examination
from pipesched.insight import jitter
from pipesched.library.assets import asset
from pipesched.library.inputs import read
from pipesched.model.costs import Costs
from pipesched.model.ops import Op
from pipesched.model.schedule import Schedule
from pipesched.schedule_analysis import Analysis
from tests.depth import deep

SCHEMA = Draft202012Validator(json.loads(asset("emit", "report.schema.json").read_text("utf-8")))


def examined(name: str, share: str = "5%", costs: Any = None, **sizes: int) -> Examination:
    asked = Options(sizes, costs=costs).owning(jitter.Jittered(deviation(share)))
    return examine(load(read(name), asked), asked)


Key: TypeAlias = tuple[Op, int, int]  # kind, stage, microbatch


def keys(schedule: Schedule) -> list[Key]:
    rows = zip(*(x.tolist() for x in (schedule.op, schedule.stage, schedule.microbatch)), strict=True)
    return [(Op(op), stage, microbatch) for op, stage, microbatch in rows]


def needs(key: Key, ran: dict[Key, int], stages: int) -> list[Key]:
    """The results of a chain that an operation waits for, by the operations that produce them."""
    op, s, i = key
    if op is Op.F:
        return [(Op.F, s - 1, i)] if s else []
    if op is Op.W:
        return [(Op.I, s, i)]
    behind = [(back, s + 1, i) for back in (Op.I, Op.B) if (back, s + 1, i) in ran]
    return behind if s < stages - 1 else [(Op.F, s, i)]


def played(schedule: Schedule, cost: dict[Key, int], delay: dict[tuple[Key, Key], int]) -> int:
    """The makespan of a chain without overlaps, operation by operation: each once all it waits for has ended."""
    each, end = keys(schedule), dict[Key, int]()
    there = dict.fromkeys(each, 0)
    lists = [each[low:high] for low, high in pairwise(schedule.start.tolist())]
    while any(lists):
        for ops in lists:
            while ops and all(x in end for x in needs(ops[0], there, schedule.stages)):
                one = ops.pop(0)
                arrived = [end[x] + delay.get((x, one), 0) for x in needs(one, there, schedule.stages)]
                at = each.index(one)
                first = at in schedule.start
                end[one] = max([0 if first else end[each[at - 1]], *arrived]) + cost[one]
    return max(end.values())


def drawn_of(drawn: jitter.Drawn, draws: int) -> Iterator[tuple[dict[Key, int], dict[tuple[Key, Key], int]]]:
    """The times of operations and messages in each draw of the first block."""
    schedule, messages = drawn.made.schedule, drawn.made.dependencies.messages()
    each, (times, late) = keys(schedule), drawn.times(0, draws)
    ends = [(each[a], each[b]) for a, b in zip(messages.producer.tolist(), messages.consumer.tolist(), strict=True)]
    for draw in range(draws):
        yield (
            dict(zip(each, times[:, draw].tolist(), strict=True)),
            dict(zip(ends, late[:, draw].tolist(), strict=True)),
        )


def test_quantiles_are_those_of_runs_one_by_one() -> None:
    """The drawn costs, given by stage and microbatch, have the same makespan, and so the same quantiles."""
    made = examined("1f1b", p=3, m=5)
    ends, finer = jitter.makespans(made.analysis, 0.2, deep(30))
    alone = []
    for by, _ in drawn_of(jitter.Drawn(made.analysis, 0.2), deep(30)):
        rows = {kind: [[by[Op[kind], stage, i] for i in range(5)] for stage in range(3)] for kind in "FB"}
        text = ",".join(f"{kind}={json.dumps(row, separators=(',', ':'))}" for kind, row in rows.items())
        alone.append(pipesched.verify("1f1b", p=3, m=5, costs=text).makespan)
    assert sorted(alone) == ends.tolist()
    assert len(set(alone)) > len(alone) // 2
    assert finer == 1000


@pytest.mark.parametrize(("name", "p", "m"), [("1f1b", 3, 5), ("zb_v", 3, 6), ("interleaved", 2, 4), ("zb_h1", 20, 8)])
def test_draws_with_messages_are_those_of_runs_one_by_one(name: str, p: int, m: int) -> None:
    """Each message has a time of its own; more draws than a block, so that the second block counts too."""
    made = examined(name, costs=Costs({"F": Fraction(2), "C": Fraction(3, 2)}), p=p, m=m).analysis
    drawn = jitter.Drawn(made, 0.3)
    alone = [played(made.schedule, *times) for times in drawn_of(drawn, deep(4))]
    assert drawn.ends(0, deep(4)).tolist() == alone
    ends, _ = jitter.makespans(made, 0.3, jitter.BLOCK + 5)
    assert len(ends) == jitter.BLOCK + 5 and {*alone} <= {*ends.tolist()}
    assert len({*ends.tolist()}) > jitter.BLOCK // 2
    late = drawn.times(0, 1)[1][:, 0]
    assert len({*late.tolist()}) > len(made.dependencies.messages()) // 2


def test_an_operation_has_one_factor_in_every_schedule() -> None:
    """An operation has the same factor in all schedules and sizes that have it; others have different ones."""
    factors: dict[Key, Any] = {}
    for name, sizes in (("1f1b", {"p": 2, "m": 4}), ("gpipe", {"p": 4, "m": 9}), ("zb_v", {"p": 3, "m": 6})):
        schedule = examined(name, **sizes).analysis.schedule
        rows = jitter.Drawn(examined(name, **sizes).analysis, 0.1).factors(schedule, np.arange(len(schedule)), 0, 7)
        assert len(np.unique(rows)) == rows.size
        for key, row in zip(keys(schedule), rows, strict=True):
            assert (factors.setdefault(key, row) == row).all()
    assert len(factors) < 2 * (8 + 36) + 3 * 36


RULE = """schedule eager(p, m = 2 * p)
stage s in 0 .. p on rank s
rank r { greedy { B  F when held < p - r } }
"""


@pytest.fixture
def rule(tmp_path: Path) -> str:
    path = tmp_path / "eager.ps"
    path.write_text(RULE)
    return str(path)


@pytest.mark.parametrize("late", [Fraction(0), Fraction(1, 2)])
def test_a_rule_decides_anew_in_each_draw(rule: str, late: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    """The makespan is the makespan of the order chosen at the drawn costs, run with these times."""
    asked = Options({"p": 3, "m": 6}, costs=Costs({"C": late})).owning(jitter.Jittered(Fraction(1, 5), True))
    made = examine(load(read(rule), asked), asked)
    decide, orders = jitter._rule(made), list[tuple[Costs, Schedule]]()
    assert decide is not None

    def watched(costs: Costs) -> Schedule:
        orders.append((costs, decide(costs)))
        return orders[-1][1]

    drawn = jitter.Drawn(made.analysis, 0.2)
    ends = list(jitter.decided(drawn, watched, 0, 12))
    assert ends == [played(order, *times) for (_, order), times in zip(orders, drawn_of(drawn, 12), strict=True)]
    assert len({tuple(keys(order)) for _, order in orders}) > 1
    for costs, order in orders:  # what the costs say is what is drawn
        if not late:
            assert Analysis(order, costs).makespan * drawn.finer == ends[orders.index((costs, order))]
    monkeypatch.setattr(jitter, "MOST_BY_RULE", len(made.loaded.schedule))
    found = jitter.jitter(made)
    assert found is not None and found.rule and found.to_json()["by_rule"] and "decided again" in found.lines()[0]


def test_a_rule_has_draws(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without jitter there are no draws; costs as a list stay a list; a large order by rule has fewer draws."""
    with pytest.raises(PipeschedError, match="--rule"):
        pipesched.verify(rule, p=2, rule=True)
    same = pipesched.verify("1f1b", p=3, jitter="5%", rule=True).jitter
    assert same == pipesched.verify("1f1b", p=3, jitter="5%").jitter and "by_rule" not in same.to_json()
    monkeypatch.setattr(jitter, "MOST_BY_RULE", 5 * 2 * 3 * 6)
    assert pipesched.verify(rule, p=3, m=6, jitter="5%", rule=True).jitter.draws == 5
    even = pipesched.verify(rule, p=3, m=6, jitter="0", rule=True)
    assert even.jitter.p50 == even.makespan


def test_compare_has_the_quantiles_beside_the_makespan() -> None:
    """The quantiles equal the quantiles of verify, at the costs of the row; the assumptions are below the table."""
    found = pipesched.compare("1f1b", "zb_v", p=3, m=6, jitter="5%", costs="F=1,B=2,C=1")
    for row in found.rows:
        costs = ",".join(f"{key}={row.costs[key]}" for key in ("F", "I", "W", "B", "C"))
        assert row.jitter == pipesched.verify(row.name, p=3, m=6, jitter="5%", costs=costs).jitter
    text = str(found)
    assert "p50" in text and "p95" in text and "1,000 draws" in text and "messages do not queue" in text
    json_rows: Any = found.to_json()["rows"]
    assert [row["jitter"]["draws"] for row in json_rows] == [1000, 1000]
    assert pipesched.compare("1f1b", p=2).rows[0].jitter is None


def test_what_is_assumed_is_said() -> None:
    """The distribution, its cut, and that messages do not queue; where C = 0, that they take no time."""
    free, late = (pipesched.verify("1f1b", p=3, jitter="5%", costs=costs).jitter.assumed[0] for costs in ("C=0", "C=1"))
    assert "cut off at 0" in free and "messages do not queue, and take no time because C = 0" in free
    assert late.endswith("messages do not queue")


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
    """The makespan is the same with and without overlaps, further inputs and copies; with a deviation half of the draws
    are longer."""
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
    """The draws and their distribution are beside the numbers in text, in one line per size and in JSON."""
    report = pipesched.verify("zb_v", p=4, m=8, jitter="5%")
    found = report.jitter
    assert found.draws == 1000 and found.share == Fraction(1, 20)
    text = str(report)
    assert (
        f"makespan at most {float(found.p50):.4g} in half of 1,000 draws" in text and "standard deviation 5 %" in text
    )
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
