"""A schedule as a graph: each operation comes after the one before it on its rank, and after the maker of its input.

    order     to the next operation of the rank
    pair      between the two parts of an overlap pair, which run as one
    needs     from the operation whose output it takes, on the same rank
    message   the same, from another rank

    cycle     of what never ends, from what a rank stands at to what it waits for, where the next rank stands

A path along order, needs and message edges never goes back in time.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import networkx as nx  # type: ignore[import-untyped]
import numpy as np

from pipesched.safe import safe
from pipesched.views import standing
from pipesched.views.chart import Chart

Graph: TypeAlias = Any  # networkx.MultiDiGraph, which has no types of its own
_NEVER = {"start": -1.0, "end": -1.0}


def graph(chart: Chart) -> Graph:
    """The graph of a chart: nodes ``r0s1`` (rank 0, step 1), in the order of ranks and steps.

    A node has its label, op, stage, microbatch, rank and step, and start and end in the unit of time as floating point
    numbers, -1 where it never runs. An edge has its kind, and the latency of a message.
    """
    made: Graph = nx.MultiDiGraph(
        name=safe(chart.title, "text"), ranks=chart.schedule.ranks, stages=chart.schedule.stages
    )
    names = node_names(chart)
    for index, name in enumerate(names):
        made.add_node(name, **_node(chart, index))
    for source, target, kind in edges(chart):
        about: dict[str, Any] = {"kind": kind}
        if kind == "message":
            stage = min(max(int(chart.schedule.stage[source]), 0), chart.schedule.stages - 1)
            about["latency"] = float(chart.time(int(chart.message[stage])))
        made.add_edge(names[source], names[target], kind, **about)
    for rank, (name, at) in stops(chart).items():
        new = {
            "label": at,
            "op": "",
            "stage": -1,
            "microbatch": -1,
            "rank": rank,
            "step": -1,
            "start": -1.0,
            "end": -1.0,
        }
        made.add_node(name, **({} if name in made else new), cycle=True)
    for waiting, awaited, told in cycle(chart):
        made.add_edge(waiting, awaited, "cycle", kind="cycle", told=told)
    if chart.stop is not None:
        made.graph["stopped"] = standing.headline(chart, chart.stop)
    return made


def stops(chart: Chart) -> dict[int, tuple[str, str]]:
    """By rank of the cycle: the node at which it stands, which is an operation or a node of its own, and its name."""
    names, links = node_names(chart), reversed(chart.stop.cycle if chart.stop else ())
    at = {link.stand.rank: link.stand for link in links}
    return {rank: (names[x.operation] if x.operation >= 0 else f"r{rank}stop", x.at) for rank, x in sorted(at.items())}


def cycle(chart: Chart) -> list[tuple[str, str, str]]:
    """Who waits for whom in the cycle, as nodes, and in words."""
    at = stops(chart)
    links = chart.stop.cycle if chart.stop else ()
    return [(at[x.stand.rank][0], at[x.other][0], standing.link(x)) for x in links]


def graphml(chart: Chart) -> str:
    """The graph as GraphML, which most graph tools read."""
    return "\n".join(nx.generate_graphml(graph(chart), named_key_ids=True)) + "\n"


def node_names(chart: Chart) -> list[str]:
    """``r0s1``, rank and step, of every operation; an operation that is there twice has two names."""
    schedule = chart.schedule
    steps = np.arange(len(schedule)) - np.repeat(schedule.start[:-1], np.diff(schedule.start)) + 1
    return [f"r{rank}s{step}" for rank, step in zip(schedule.rank.tolist(), steps.tolist(), strict=True)]


def edges(chart: Chart) -> list[tuple[int, int, str]]:
    """Source, target and kind, by target."""
    schedule, dependencies = chart.schedule, chart.dependencies
    first = set(schedule.start[:-1].tolist())
    made = []
    columns = zip(schedule.joined.tolist(), dependencies.producer.tolist(), dependencies.crosses.tolist(), strict=True)
    for index, (joined, producer, crosses) in enumerate(columns):
        if index not in first:
            made.append((index - 1, index, "pair" if joined else "order"))
        if producer >= 0:
            made.append((producer, index, "message" if crosses else "needs"))
    return made


def _node(chart: Chart, index: int) -> dict[str, Any]:
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
