"""The graph and the table hold every operation, every input and every time of a simulated run, and nothing else."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import xml.etree.ElementTree as ET
from fractions import Fraction

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipesched
from pipesched.chart.chart import chart
from pipesched.diagnostics import PipeschedError
from pipesched.model.ops import Op
from pipesched.model.schedule import Schedule
from pipesched.views import graph, spreadsheet
from tests.depth import deep
from tests.makers import strategies
from tests.oracles import simulate
from tests.oracles.simulate import rows

CALM = settings(derandomize=True, deadline=None, max_examples=deep(15))
needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="the program dot of Graphviz is not installed")


@CALM
@given(strategies.schedules(), st.data())
def test_the_graph_is_the_simulated_run(schedule: Schedule, data: st.DataObject) -> None:
    """Read back from GraphML: nodes are the operations with their times; dependency and message edges lead from the
    simulated producers, with rank changes and latencies; order and pair edges join neighbouring operations of a rank.
    """
    costs = data.draw(strategies.costs(schedule.stages))
    played, late = simulate.run(schedule, rows(costs, schedule.stages)), rows(costs, schedule.stages)["C"]
    assert late is not None
    made = nx.parse_graphml(graph.graphml(chart(schedule, costs)))
    where = {(about["rank"], about["step"] - 1): name for name, about in made.nodes(data=True)}
    told = {
        spot: tuple(made.nodes[name][key] for key in ("op", "stage", "microbatch", "start", "end", "label"))
        for spot, name in where.items()
    }
    assert told == {
        (rank, i): (
            *(x.op.name, x.stage, x.microbatch, float(played.start[rank, i]), float(played.end[rank, i])),
            f"{x.op.name}{x.stage}.{x.microbatch}",
        )
        for rank, order in enumerate(played.orders)
        for i, x in enumerate(order)
    }
    expected = {
        (where[source], where[target], "message", float(late[played.orders[source[0]][source[1]].stage]))
        if source[0] != target[0]
        else (where[source], where[target], "needs", None)
        for target, source in simulate.producers(played.orders, schedule.stages).items()
    }
    for rank, order in enumerate(played.orders):
        for i in range(1, len(order)):
            expected.add((where[rank, i - 1], where[rank, i], "pair" if order[i].second else "order", None))
    found = [(source, target, about["kind"], about.get("latency")) for source, target, about in made.edges(data=True)]
    assert len(found) == len(expected) and set(found) == expected


@needs_dot
def test_svg_and_png_are_drawn_where_dot_is() -> None:
    """SVG is XML with a group for each operation and edge; PNG begins with its signature."""
    drawn = chart(pipesched.load("gpipe", p=2, m=2))
    text, picture = graph.drawn(drawn, "svg"), graph.drawn(drawn, "png")
    assert text is not None and picture is not None
    groups = [x.get("class") for x in ET.fromstring(text).iter("{http://www.w3.org/2000/svg}g")]
    assert groups.count("node") == len(drawn.schedule) + 2
    assert picture.startswith(b"\x89PNG\r\n")


def test_without_dot_there_is_no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """None, not an error: the caller has DOT text."""
    monkeypatch.setenv("PATH", "")
    drawn = chart(pipesched.load("gpipe", p=2, m=2))
    assert graph.drawn(drawn, "svg") is None and graph.drawn(drawn, "png") is None
    assert graph.dot(drawn).startswith("digraph")


def test_a_graph_that_nobody_could_read_is_refused_unless_forced() -> None:
    """PS815 above the limit, with the alternatives; GraphML has no such limit."""
    drawn = chart(pipesched.load("1f1b", p=8, m=graph.MAX_OPS // 16 + 1))
    with pytest.raises(PipeschedError, match="PS815"):
        graph.dot(drawn)
    assert graph.dot(drawn, force=True).count("label=") >= len(drawn.schedule)
    assert graph.graphml(drawn).count("<node ") == len(drawn.schedule)


@needs_dot
def test_a_title_is_text_whatever_it_holds() -> None:
    """Quotes, backslashes, angle brackets and braces of a name appear in the file as they are."""
    schedule = pipesched.load("gpipe", p=2, m=2)
    for title in ('a"b', "a\\nb", "<b>", "{x|y}", "a-b c", "strict", "4"):
        text = graph.dot(chart(schedule, title=title))
        done = subprocess.run(["dot", "-Tdot_json"], input=text, capture_output=True, text=True, timeout=30, check=True)
        assert json.loads(done.stdout)["name"] == title


@CALM
@given(strategies.schedules(), st.data())
def test_the_table_is_the_simulated_run(schedule: Schedule, data: st.DataObject) -> None:
    """One line per operation with its exact times, the producer of its input, and its rank's memory after it."""
    costs = data.draw(strategies.costs(schedule.stages))
    played = simulate.run(schedule, rows(costs, schedule.stages))
    made_by = simulate.producers(played.orders, schedule.stages)
    lines = list(csv.DictReader(io.StringIO(spreadsheet.csv(chart(schedule, costs)))))
    expected = []
    for rank, order in enumerate(played.orders):
        for i, x in enumerate(order):
            there = made_by.get((rank, i))
            needs = str(played.orders[there[0]][there[1]]) if there else ""
            at = (played.start[rank, i], played.end[rank, i])
            live = sum({Op.F: 1, Op.I: 0}.get(y.op, -1) for y in order[: i + 1])
            held = live * Fraction(schedule.ranks, schedule.stages)
            expected.append((rank, i + 1, x.op.name, x.stage, x.microbatch, *at, needs, held))
    whole = ("rank", "step", "stage", "microbatch")
    assert expected == [
        (
            *(int(line[key]) if key in whole else line[key] for key in ("rank", "step", "op", "stage", "microbatch")),
            Fraction(line["start"]),
            Fraction(line["end"]),
            line["needs"],
            Fraction(line["held"]),
        )
        for line in lines
    ]


@settings(CALM, max_examples=deep(20))
@given(strategies.SEEDS)
def test_broken_orders_have_a_graph_and_a_table(seed: int) -> None:
    """Missing, repeated, misplaced or deadlocked operations; those that never run have no times."""
    drawn = chart(strategies.broken_schedule(seed))
    lines = list(csv.DictReader(io.StringIO(spreadsheet.csv(drawn))))
    assert len(lines) == len(drawn.schedule) == len(graph.graph(drawn)) == graph.dot(drawn).count("tooltip=")
    never = [line for line in lines if not line["start"]]
    assert len(never) == graph.dot(drawn).count('tooltip="never runs"') and all(not line["end"] for line in never)
