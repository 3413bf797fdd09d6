"""A schedule as a graph: each operation follows the previous one on its rank, and the producer of its input.

    order     to the next operation of the rank
    pair      between the two parts of an overlap pair, which run as one
    needs     from the producer of an input, on the same rank
    message   from the producer of an input, on another rank

    cycle     from the node where a rank stops to the one for which it waits, where the next rank stops

A path along order, needs and message edges never goes back in time. The drawing has a row for each rank, and time from
left to right:

    rank 0   F0.0 ─ F0.1 ──────── B0.0 ─ B0.1       grey: the order of the rank; dashed within an overlap pair
                 ╲      ╲        ╱      ╱           dark: a message; dotted: an input from the same rank
    rank 1        F1.0 ─ B1.0 ─ F1.1 ─ B1.1         red: the critical path

An operation that never runs is pale and dashed. If ranks wait for each other, octagons mark where each stops, and thick
edges follow the cycle. DOT is text and needs no other program; Graphviz's `dot` lays it out if it is installed.
"""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from typing import TYPE_CHECKING

import graphviz
import numpy as np

from pipesched.diagnostics import Code, fail
from pipesched.support.safe import safe
from pipesched.views.causes import critical_path
from pipesched.views.chart import caption
from pipesched.views.chart.chart import Chart
from pipesched.views.codes import ViewsCode
from pipesched.views.columns import causes_of, delays
from pipesched.views.palette import ALARM, ink, style

if TYPE_CHECKING:
    from networkx import MultiDiGraph


@dataclass(frozen=True)
class _Parts:
    """A graph as plain data. nodes: attributes by name, sorted by rank and step. edges: source, target, kind,
    attributes.
    """

    about: dict[str, object]
    nodes: dict[str, dict[str, object]]
    edges: list[tuple[str, str, str, dict[str, object]]]


def graph(chart: Chart) -> MultiDiGraph:
    """Return the graph of a chart: nodes ``r0s1`` (rank 0, step 1), in the order of ranks and steps.

    A node has its label, op, stage, microbatch, rank and step, and start and end in the unit of time as floats, -1 if
    it never runs. An edge has its kind, and for a message its latency.

    Raises:
        PipeschedError: PS820: networkx is not installed.
    """
    try:
        from networkx import MultiDiGraph
    except ImportError:
        help = "pip install 'pipesched[views]'; `show -o graph.graphml` needs no package"
        raise fail(Code.NEEDS, "a graph needs networkx, which is not installed", help=help) from None
    parts, made = _parts(chart), MultiDiGraph()
    made.graph.update(parts.about)
    made.add_nodes_from(parts.nodes.items())
    made.add_edges_from(parts.edges)
    return made


def _parts(chart: Chart) -> _Parts:
    names = node_names(chart)
    nodes = {name: _node(chart, index) for index, name in enumerate(names)}
    late = delays(chart, np.arange(len(chart.schedule))).tolist()
    made = []
    for source, target, kind in edges(chart):
        latency = {"latency": float(chart.time(late[source]))} if kind == "message" else {}
        made.append((names[source], names[target], kind, {"kind": kind, **latency}))
    stops, waits = _cycle(chart)
    for rank, (name, at) in stops.items():
        nodes.setdefault(name, {"label": at, "op": "", **_NOWHERE, "rank": rank, **_NO_TIME})["cycle"] = True
    made += [(waiting, awaited, "cycle", {"kind": "cycle", "sentence": said}) for waiting, awaited, said in waits]
    about: dict[str, object] = {"name": safe(chart.identifier, "text")}
    about |= {"ranks": chart.schedule.ranks, "stages": chart.schedule.stages}
    if chart.analysis.standstill is not None:
        about["stopped"] = caption.stopped(chart, chart.analysis.standstill)
    return _Parts(about, nodes, made)


_NOWHERE = {"stage": -1, "microbatch": -1, "rank": -1, "step": -1}
_NO_TIME = {"start": -1.0, "end": -1.0}


def _cycle(chart: Chart) -> tuple[dict[int, tuple[str, str]], list[tuple[str, str, str]]]:
    """Return, for each rank of the cycle, the name and label of the node at which it stops (an operation or an extra
    node), and the waits of the cycle as (waiting node, awaited node, sentence).
    """
    links, names = chart.analysis.standstill.cycle if chart.analysis.standstill else (), node_names(chart)
    at = {x.blocked.rank: x.blocked for x in reversed(links)}
    stops = {rank: (names[x.operation] if x.operation >= 0 else f"r{rank}stop", x.at) for rank, x in sorted(at.items())}
    return stops, [(stops[x.blocked.rank][0], stops[x.other][0], caption.link(x)) for x in links]


def graphml(chart: Chart) -> str:
    """Return the graph as GraphML, which most graph tools read. Edges are sorted by their sources."""
    parts = _parts(chart)
    root = ET.Element("graphml", _NAMESPACES)
    drawn = ET.SubElement(root, "graph", edgedefault="directed")
    keys: dict[str, ET.Element] = {}

    def add(to: ET.Element, values: dict[str, object]) -> None:
        for key, value in values.items():
            if key not in keys:
                said = {"id": key, "for": to.tag, "attr.name": key, "attr.type": _TYPES[type(value)]}
                keys[key] = ET.Element("key", said)
            ET.SubElement(to, "data", key=key).text = str(value)

    add(drawn, parts.about)
    about, drawn[:] = drawn[:], []
    for name, values in parts.nodes.items():
        add(ET.SubElement(drawn, "node", id=name), values)
    order = {name: i for i, name in enumerate(parts.nodes)}
    for source, target, kind, values in sorted(parts.edges, key=lambda edge: order[edge[0]]):
        add(ET.SubElement(drawn, "edge", source=source, target=target, id=kind), values)
    drawn.extend(about)
    root[:] = [*reversed(keys.values()), drawn]
    ET.indent(root)
    return ET.tostring(root, "unicode") + "\n"


_TYPES: dict[type, str] = {str: "string", bool: "boolean", int: "long", float: "double"}
_HOME = "http://graphml.graphdrawing.org/xmlns"
_SCHEMA = {"xmlns:xsi": "http://www.w3.org/2001/XMLSchema-instance"}
_NAMESPACES = {"xmlns": _HOME, **_SCHEMA, "xsi:schemaLocation": f"{_HOME} {_HOME}/1.0/graphml.xsd"}


def node_names(chart: Chart) -> list[str]:
    """Return ``r0s1``, rank and step, for every operation; an operation that occurs twice has two names."""
    schedule = chart.schedule
    steps = np.arange(len(schedule)) - np.repeat(schedule.start[:-1], np.diff(schedule.start)) + 1
    return [f"r{rank}s{step}" for rank, step in zip(schedule.rank.tolist(), steps.tolist(), strict=True)]


def edges(chart: Chart) -> list[tuple[int, int, str]]:
    """Return (source, target, kind) of every edge, sorted by target."""
    schedule, found = chart.schedule, chart.analysis.dependencies.edges()
    first = set(schedule.start[:-1].tolist())
    inner = (x for x in enumerate(schedule.joined.tolist()) if x[0] not in first)
    made = [(index - 1, index, "pair" if joined else "order") for index, joined in inner]
    columns = zip(found.producer.tolist(), found.consumer.tolist(), found.crosses.tolist(), strict=True)
    made += [(producer, index, "message" if crosses else "needs") for producer, index, crosses in columns]
    return sorted(made, key=lambda edge: edge[1])


def _node(chart: Chart, index: int) -> dict[str, object]:
    schedule, times = chart.schedule, chart.times
    op, ran = schedule[index], times.start[index] >= 0
    return {
        "label": str(op),
        "op": op.op.name,
        "stage": op.stage,
        "microbatch": op.microbatch,
        "rank": int(schedule.rank[index]),
        "step": schedule.step(index),
        "start": float(chart.time(int(times.start[index]))) if ran else -1.0,
        "end": float(chart.time(int(times.end[index]))) if ran else -1.0,
    }


MAX_OPS = 3_000
"""The largest number of operations laid out without --force: `dot` takes minutes for more, and nobody can read them."""

HOW_TO_GET_IT = "the program `dot` is missing: install Graphviz (apt-get install graphviz, brew install graphviz)"


def dot(chart: Chart, *, force: bool = False) -> str:
    """Return the graph as DOT.

    Raises:
        PipeschedError: PS815: there are more than `MAX_OPS` operations and drawing is not forced.
    """
    return str(_graph(chart, force).source)


def drawn(chart: Chart, form: str, *, force: bool = False) -> bytes | None:
    """Return the graph as ``svg``, ``png`` or ``pdf``, or None if the program `dot` is not installed.

    Raises:
        PipeschedError: PS815: as for `dot`.
    """
    try:
        return bytes(_graph(chart, force).pipe(format=form))
    except graphviz.ExecutableNotFound:
        return None


def _graph(chart: Chart, force: bool) -> graphviz.Digraph:
    count = len(chart.schedule)
    if count > MAX_OPS and not force:
        message = f"a graph of {count:,} operations takes minutes to lay out; {MAX_OPS:,} is the limit"
        raise fail(ViewsCode.TOO_LARGE, message, help="draw fewer microbatches, write GraphML, or give --force")
    made = graphviz.Digraph(
        graphviz.nohtml(safe(chart.identifier, "line").rstrip("\\")),  # an identifier: backslashes are kept
        graph_attr={"rankdir": "LR", "nodesep": "0.15", "ranksep": "0.25", "fontname": "sans-serif"},
        node_attr={
            "shape": "box",
            "style": "filled",
            "color": "#00000000",
            "fontname": "sans-serif",
            "fontsize": "11",
            "height": "0.3",
            "width": "0.5",
            "margin": "0.05,0.02",
        },
        edge_attr={"arrowsize": "0.6"},
    )
    _nodes(made, chart)
    _edges(made, chart)
    _stops(made, chart)
    return made


def _stops(made: graphviz.Digraph, chart: Chart) -> None:
    """Add the cycle, if there is one, and its description below the graph."""
    if chart.analysis.standstill is None:
        return
    made.attr(label=safe(caption.stopped(chart, chart.analysis.standstill), "dot"), fontcolor=ALARM[0], labelloc="t")
    stops, waits = _cycle(chart)
    for rank, (name, at) in stops.items():
        made.node(name, safe(at, "dot"), group=str(rank), **_CYCLE)
        low, high = (int(x) for x in chart.schedule.start[rank : rank + 2])
        ran = int((chart.times.start[low:high] >= 0).sum())
        last = node_names(chart)[low + ran - 1] if ran else ""
        if last and name.endswith("stop"):
            made.edge(last, name, **_LOOKS["order"])
    for source, target, _ in waits:
        made.edge(source, target, color=ALARM[0], penwidth="3", constraint="false")


def _critical(chart: Chart) -> set[tuple[int, int]]:
    """Return the critical path as (slot, slot) edges; each slot also has an edge to itself, for overlap pairs."""
    joined = chart.schedule.joined
    path = [index - int(joined[index]) for index in critical_path(chart.times, causes_of(chart))]
    return {*itertools.pairwise(path), *((index, index) for index in path)}


def _nodes(made: graphviz.Digraph, chart: Chart) -> None:
    """Add the operations of each rank as a group, which `dot` keeps on one line."""
    schedule, names, look = chart.schedule, node_names(chart), style("default")
    for rank in range(schedule.ranks):
        made.node(f"rank {rank}", shape="plaintext", style="", group=str(rank))
        for index in range(int(schedule.start[rank]), int(schedule.start[rank + 1])):
            op = schedule[index]
            fill = look.colour(op.op)
            filled = {"fillcolor": fill, "fontcolor": "white" if ink(fill) == "#fff" else "black"}
            made.node(
                names[index],
                graphviz.escape(str(op)),
                group=str(rank),
                **(filled if chart.times.start[index] >= 0 else _NEVER),
                tooltip=_tooltip(chart, index),
            )


def _tooltip(chart: Chart, index: int) -> str:
    if chart.times.start[index] < 0:
        return "never runs"
    begin, end = (chart.said(int(x[index])) for x in (chart.times.start, chart.times.end))
    return f"rank {chart.schedule.rank[index]}, from {begin} to {end}"


_NEVER = {"fillcolor": "#ffffff", "color": "#888888", "style": "filled,dashed", "fontcolor": "#666666"}
_CYCLE = {
    "shape": "octagon",
    "style": "filled",
    "fillcolor": "#ffffff",
    "color": ALARM[0],
    "fontcolor": ALARM[0],
    "penwidth": "3",
}
_LOOKS = {
    "order": {"color": "#bbbbbb", "arrowhead": "none", "weight": "8"},
    "pair": {"color": "#bbbbbb", "arrowhead": "none", "style": "dashed", "weight": "8"},
    "needs": {"color": "#888888", "style": "dotted", "constraint": "false"},
    "message": {"color": "#333333"},
}
_PATH = {"color": "#d62728", "penwidth": "2"}


def _edges(made: graphviz.Digraph, chart: Chart) -> None:
    schedule, names, steps = chart.schedule, node_names(chart), _critical(chart)
    for rank in range(schedule.ranks):
        low, high = int(schedule.start[rank]), int(schedule.start[rank + 1])
        if low < high:
            made.edge(f"rank {rank}", names[low], style="invis", weight="8")
    joined = schedule.joined
    for source, target, kind in edges(chart):
        step = (source - int(joined[source]), target - int(joined[target]))
        look = _PATH if step in steps and kind != "needs" else {}
        made.edge(names[source], names[target], **{**_LOOKS[kind], **look})
