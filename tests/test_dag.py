"""The graph and the table hold every operation, every input and every time of a simulated run, and nothing else."""

from __future__ import annotations

import csv
import io
import json
import re
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
from pipesched.model.costs import Costs
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
@given(strategies.schedules())
def test_the_graph_has_an_edge_for_every_input_and_every_neighbour(schedule: Schedule) -> None:
    """Nodes are the operations; needs and message edges the producers of a simulation, told apart by rank; order and
    pair edges join the operations of a rank that stand side by side.
    """
    made = graph.graph(chart(schedule))
    orders = simulate.orders_of(schedule)
    where = {(about["rank"], about["step"] - 1): name for name, about in made.nodes(data=True)}
    assert {spot: made.nodes[name]["label"] for spot, name in where.items()} == {
        (rank, i): f"{x.op.name}{x.stage}.{x.microbatch}"
        for rank, order in enumerate(orders)
        for i, x in enumerate(order)
    }
    expected = {
        (where[source], where[target], "message" if source[0] != target[0] else "needs")
        for target, source in simulate.producers(orders, schedule.stages).items()
    }
    for rank, order in enumerate(orders):
        for i in range(1, len(order)):
            expected.add((where[rank, i - 1], where[rank, i], "pair" if order[i].second else "order"))
    found = [(source, target, about["kind"]) for source, target, about in made.edges(data=True)]
    assert len(found) == len(expected) and set(found) == expected


@CALM
@given(strategies.schedules(), st.data())
def test_the_longest_path_of_the_graph_is_the_makespan(schedule: Schedule, data: st.DataObject) -> None:
    """With a slot's duration on its first operation and latencies on messages, no path is longer than the makespan and
    one is as long; the parts of a pair are one node.
    """
    costs = data.draw(strategies.costs(schedule.stages))
    drawn = chart(schedule, costs)
    played = simulate.run(schedule, rows(costs, schedule.stages))
    slots = nx.DiGraph()
    made = graph.graph(drawn)
    head = {target: source for source, target, about in made.edges(data=True) if about["kind"] == "pair"}
    for name, about in made.nodes(data=True):
        if name not in head:
            slots.add_node(name, length=about["end"] - about["start"])
    for source, target, about in made.edges(data=True):
        one, two = head.get(source, source), head.get(target, target)
        if one != two:
            before = slots.edges[one, two]["late"] if slots.has_edge(one, two) else 0.0
            slots.add_edge(one, two, late=max(before, about.get("latency", 0.0)))
    end: dict[str, float] = {}
    for name in nx.topological_sort(slots):
        begin = max((end[x] + slots.edges[x, name]["late"] for x in slots.predecessors(name)), default=0.0)
        end[name] = begin + slots.nodes[name]["length"]
    assert max(end.values()) == pytest.approx(float(played.makespan))


def test_graphml_is_read_back_as_the_same_graph() -> None:
    """Nodes, edges and what they carry survive the file."""
    drawn = chart(pipesched.load("dualpipe", p=4, m=8), Costs.parse("F=1/2,C=1"))
    back, made = nx.parse_graphml(graph.graphml(drawn)), graph.graph(drawn)
    assert dict(back.nodes(data=True)) == dict(made.nodes(data=True))
    assert sorted(back.edges(data=True), key=str) == sorted(made.edges(data=True), key=str)


def test_dot_is_text_and_deterministic() -> None:
    """Every operation once, an arrow or line for every edge of the graph, the same bytes each time."""
    drawn = chart(pipesched.load("zb_h1", p=3, m=4))
    text = graph.dot(drawn)
    made = graph.graph(drawn)
    assert text == graph.dot(drawn)
    assert sorted(re.findall(r'label="([FIWB]\d+\.\d+)"', text)) == sorted(x for _, x in made.nodes(data="label"))
    arrows = re.findall(r"^\t(r\d+s\d+) -> (r\d+s\d+) ", text, re.MULTILINE)
    assert sorted(arrows) == sorted((source, target) for source, target in made.edges())


def test_the_red_edges_are_a_critical_path() -> None:
    """They lead from an operation that starts at 0 to one that ends last, each right after the one before it."""
    drawn = chart(pipesched.load("1f1b", p=3, m=4), Costs.parse("C=1/2"))
    text, about = graph.dot(drawn), graph.graph(drawn).nodes
    red = re.findall(r'^\t(r\d+s\d+) -> (r\d+s\d+) \[.*color="#d62728"', text, re.MULTILINE)
    following = dict(red)
    (first,) = set(following) - set(following.values())
    assert about[first]["start"] == 0
    at = first
    while at in following:
        late = 0 if at.split("s")[0] == following[at].split("s")[0] else 0.5
        assert about[following[at]]["start"] == about[at]["end"] + late
        at = following.pop(at)
    assert not following and about[at]["end"] == float(drawn.makespan)


@needs_dot
def test_svg_and_png_are_drawn_where_dot_is() -> None:
    """SVG is XML with a group for each operation and edge; PNG begins with its mark."""
    drawn = chart(pipesched.load("gpipe", p=2, m=2))
    text, picture = graph.drawn(drawn, "svg"), graph.drawn(drawn, "png")
    assert text is not None and picture is not None
    groups = [x.get("class") for x in ET.fromstring(text).iter("{http://www.w3.org/2000/svg}g")]
    assert groups.count("node") == len(drawn.schedule) + 2
    assert picture.startswith(b"\x89PNG\r\n")


def test_without_dot_there_is_no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """None, not an error: the caller has DOT to give."""
    monkeypatch.setenv("PATH", "")
    drawn = chart(pipesched.load("gpipe", p=2, m=2))
    assert graph.drawn(drawn, "svg") is None and graph.drawn(drawn, "png") is None
    assert graph.dot(drawn).startswith("digraph")


def test_a_graph_that_nobody_could_read_is_refused_unless_forced() -> None:
    """PS815 above the limit, with the way out; GraphML has no such limit."""
    drawn = chart(pipesched.load("1f1b", p=8, m=graph.MAX_OPS // 16 + 1))
    with pytest.raises(PipeschedError, match="PS815"):
        graph.dot(drawn)
    assert graph.dot(drawn, force=True).count("label=") >= len(drawn.schedule)
    assert graph.graphml(drawn).count("<node ") == len(drawn.schedule)


@needs_dot
def test_a_title_is_text_whatever_it_holds() -> None:
    """Quotes, backslashes, angles and braces of a name reach the file as they are."""
    schedule = pipesched.load("gpipe", p=2, m=2)
    for title in ('a"b', "a\\nb", "<b>", "{x|y}", "a-b c", "strict", "4"):
        text = graph.dot(chart(schedule, title=title))
        done = subprocess.run(["dot", "-Tdot_json"], input=text, capture_output=True, text=True, timeout=30, check=True)
        assert json.loads(done.stdout)["name"] == title


@CALM
@given(strategies.schedules(), st.data())
def test_the_table_is_the_simulated_run(schedule: Schedule, data: st.DataObject) -> None:
    """A line an operation with its exact times, the producer of its input, and what its rank holds after it."""
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
    """Whatever is missing, twice, misplaced or stuck; what never runs has no times."""
    drawn = chart(strategies.broken_schedule(seed))
    lines = list(csv.DictReader(io.StringIO(spreadsheet.csv(drawn))))
    assert len(lines) == len(drawn.schedule) == len(graph.graph(drawn)) == graph.dot(drawn).count("tooltip=")
    never = [line for line in lines if not line["start"]]
    assert len(never) == graph.dot(drawn).count('tooltip="never runs"') and all(not line["end"] for line in never)
