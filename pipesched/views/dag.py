"""The dependency graph, drawn: a row for each rank, an edge for each input, from left to right.

    rank 0   F0.0 ─ F0.1 ──────── B0.0 ─ B0.1       grey: the order of the rank; dashed within an overlap pair
                 ╲      ╲        ╱      ╱           dark: a message; dotted: an input from the same rank
    rank 1        F1.0 ─ B1.0 ─ F1.1 ─ B1.1         red: the critical path

What never runs is pale and dashed. Where ranks wait for each other, what they stand at is an octagon, and thick edges
go round the cycle.

DOT is text and always there; `dot` of Graphviz lays it out as SVG or PNG where it is installed.
"""

from __future__ import annotations

import itertools

import graphviz  # type: ignore[import-untyped]

from pipesched.analysis.causes import causes, critical_path
from pipesched.diagnostics import Code, fail
from pipesched.model.numbers import shown
from pipesched.safe import safe
from pipesched.views.chart import Chart
from pipesched.views.graph import cycle, edges, node_names, stops
from pipesched.views.palette import ALARM, ink, style
from pipesched.views.standing import headline

MAX_OPS = 3_000
"""More than these take `dot` minutes, and nobody reads them."""

HOW_TO_GET_IT = "the program `dot` is missing: install Graphviz (apt-get install graphviz, brew install graphviz)"


def dot(chart: Chart, *, force: bool = False) -> str:
    """The graph as DOT.

    Raises:
        PipeschedError: PS815, more than `MAX_OPS` operations, unless forced.
    """
    return str(_graph(chart, force).source)


def svg(chart: Chart, *, force: bool = False) -> str | None:
    """The graph as SVG, or None where `dot` is not installed.

    Raises:
        PipeschedError: PS815, as `dot`.
    """
    drawn = _drawn(chart, "svg", force)
    return None if drawn is None else drawn.decode("utf-8")


def png(chart: Chart, *, force: bool = False) -> bytes | None:
    """The graph as PNG, or None where `dot` is not installed.

    Raises:
        PipeschedError: PS815, as `dot`.
    """
    return _drawn(chart, "png", force)


def pdf(chart: Chart, *, force: bool = False) -> bytes | None:
    """The graph as PDF, or None where `dot` is not installed.

    Raises:
        PipeschedError: PS815, as `dot`.
    """
    return _drawn(chart, "pdf", force)


def _drawn(chart: Chart, format: str, force: bool) -> bytes | None:
    try:
        return bytes(_graph(chart, force).pipe(format=format))
    except graphviz.ExecutableNotFound:
        return None


def _graph(chart: Chart, force: bool) -> graphviz.Digraph:
    count = len(chart.schedule)
    if count > MAX_OPS and not force:
        message = f"a graph of {count:,} operations takes minutes to lay out; {MAX_OPS:,} are drawn"
        raise fail(Code.TOO_LARGE, message, help="draw fewer microbatches, write GraphML, or say --force")
    made = graphviz.Digraph(
        graphviz.nohtml(safe(chart.title, "line").rstrip("\\")),  # an identifier: escapes are those of labels
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
    """The cycle, if there is one, and the words for it under the graph."""
    if chart.stop is None:
        return
    made.attr(label=safe(headline(chart, chart.stop), "dot"), fontcolor=ALARM[0], labelloc="t")
    for rank, (name, at) in stops(chart).items():
        made.node(name, safe(at, "dot"), group=str(rank), **_CYCLE)
        last = _last(chart, rank)
        if last and name.endswith("stop"):
            made.edge(last, name, **_LOOKS["order"])
    for source, target, _ in cycle(chart):
        made.edge(source, target, color=ALARM[0], penwidth="3", constraint="false")


def _last(chart: Chart, rank: int) -> str:
    """The last operation of a rank that runs."""
    low, high = (int(x) for x in chart.schedule.start[rank : rank + 2])
    ran = int((chart.times.start[low:high] >= 0).sum())
    return node_names(chart)[low + ran - 1] if ran else ""


def _critical(chart: Chart) -> set[tuple[int, int]]:
    """The steps of the critical path, from slot to slot, and from a pair's first part to its second."""
    why = causes(chart.schedule, chart.dependencies, chart.times, chart.analysis.ticks)
    joined = chart.schedule.joined
    path = [index - int(joined[index]) for index in critical_path(chart.times, why)]
    return {*itertools.pairwise(path), *((index, index) for index in path)}


def _nodes(made: graphviz.Digraph, chart: Chart) -> None:
    """The operations of a rank are a group, which `dot` keeps on a line."""
    schedule, names, look = chart.schedule, node_names(chart), style("default")
    for rank in range(schedule.ranks):
        made.node(f"rank {rank}", shape="plaintext", style="", group=str(rank))
        for index in range(int(schedule.start[rank]), int(schedule.start[rank + 1])):
            op = schedule[index]
            fill = look.fill[op.op]
            made.node(
                names[index],
                graphviz.escape(str(op)),
                group=str(rank),
                **(_filled(fill) if chart.times.start[index] >= 0 else _NEVER),
                tooltip=_tooltip(chart, index),
            )


def _filled(fill: str) -> dict[str, str]:
    return {"fillcolor": fill, "fontcolor": "white" if ink(fill) == "#fff" else "black"}


def _tooltip(chart: Chart, index: int) -> str:
    if chart.times.start[index] < 0:
        return "never runs"
    begin, end = (shown(chart.time(int(x[index]))) for x in (chart.times.start, chart.times.end))
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
