"""A schedule without any backward is reported as forward-only, keeps nothing for a backward, and computes no
gradients.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipesched
from pipesched.analysis.holdings import memory
from pipesched.model.ops import Op
from pipesched.model.release import Release
from pipesched.model.schedule import Schedule
from pipesched.views.chart.chart import chart
from pipesched.views.chart.slots import steps
from tests.depth import deep
from tests.makers import strategies
from tests.oracles import simulate
from tests.oracles.simulate import rows

CALM = settings(derandomize=True, deadline=None, max_examples=deep(7))
HALF_OF_GPIPE = "schedule half(p, m)\nstage s in 0 .. p on rank s\nrank r { repeat m { F } }\nclaim peak(r) == 1\n"


def forwards(schedule: Schedule) -> Schedule:
    """Return the F of a schedule, in its order."""
    orders = [[x for x in schedule.order(rank) if x.op is Op.F] for rank in range(schedule.ranks)]
    return Schedule.from_orders(orders, schedule.placement)


def verify(text: str, **options: object) -> pipesched.Report:
    name = "half.ps" if text.startswith("schedule") else "half.csv" if text[0].isdigit() else "half.txt"
    return pipesched.verify(pipesched.Source(name, text), **options)  # type: ignore[arg-type]


@CALM
@given(strategies.schedules(), st.sampled_from(["W", "I", "torch"]), st.data())
def test_it_holds_what_one_forward_takes(drawn: Schedule, rule: str, data: st.DataObject) -> None:
    """Under every release rule the peak of a rank is the largest of its F, and only while it runs."""
    schedule = forwards(drawn)
    sizes = data.draw(strategies.sizes(schedule.stages))
    costs = data.draw(strategies.costs(schedule.stages))
    unit = Fraction(schedule.ranks, schedule.stages)
    found = memory(schedule, Release.parse(rule), sizes)

    assert list(found.peak) == [
        max((sizes[x.stage] * unit for x in schedule.order(rank)), default=Fraction(0))
        for rank in range(schedule.ranks)
    ]
    assert all(found.live(i) in ([], [(schedule[i].stage, schedule[i].microbatch)]) for i in range(len(schedule)))
    drawn_chart = chart(schedule, costs)
    played = simulate.run(schedule, rows(costs, schedule.stages))
    for rank in range(schedule.ranks):
        when, held = steps(drawn_chart, rank)
        assert held[-1] == 0
        assert when[1:].tolist() == [
            int(instant * drawn_chart.scale)
            for i in range(len(schedule.order(rank)))
            if (rank, i) in played.start
            for instant in (played.start[rank, i], played.end[rank, i])
        ]


def test_the_first_line_and_the_json_say_so() -> None:
    """GPipe's forward half is right, is called forward-only, and has peak 1 on every rank."""
    report = verify(HALF_OF_GPIPE, p=4, m=8)

    assert report.ok
    assert str(report).splitlines()[0].split("   ")[1] == "forward-only"
    assert "forward-only" in report.line()
    assert report.to_json()["forward_only"] is True
    assert report.memory is not None and set(report.memory.peak) == {1}
    trained = pipesched.verify("gpipe", p=4, m=8)
    assert trained.to_json()["forward_only"] is False and "forward-only" not in str(trained)


@pytest.mark.parametrize(
    ("order", "word"),
    [
        ("rank 0: F0.0 send:F0.0>1 reduce:0\nrank 1: recv:F0.0<0 F1.0\n", "0REDUCE_GRAD on rank 0"),
        ("rank 0: F0.0 send:F0.0>1 step\nrank 1: recv:F0.0<0 F1.0\n", "STEP on rank 0"),
        ("rank 0: F0.0 send:F0.0>1 sync:0=1\nrank 1: recv:F0.0<0 F1.0 sync:0=0\n", "0SYNC on rank 0"),
        ("0F0,0SEND_F0\n1RECV_F0,1F0,1REDUCE_GRAD\n", "1REDUCE_GRAD on rank 1"),
    ],
)
def test_what_needs_a_gradient_is_an_error(order: str, word: str) -> None:
    """REDUCE_GRAD, SYNC and STEP would divide, add and apply gradients of an earlier step."""
    report = verify(order)

    assert not report.ok
    assert [word in d.message for d in report.diagnostics if d.code == "PS607"][:1] == [True]


def test_a_stream_of_it_holds(tmp_path: Path) -> None:
    """Its stream has neither reductions nor steps, and reads back as forward-only."""
    file = tmp_path / "half.ps"
    file.write_text(HALF_OF_GPIPE)
    stream = "".join(pipesched.emit(str(file), p=2, m=3))
    again = pipesched.verify(pipesched.Source("half.json", stream))

    assert again.ok and again.forward_only
