"""Readers of pictures: each one returns the operations and messages that a picture shows.

What a picture draws twice, such as a time as a rectangle and as a tooltip, is the same there, or the reader fails.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import Any
from xml.etree import ElementTree

import networkx as nx
import numpy as np

from pipesched.views import graph, html, spreadsheet, svg, trace
from pipesched.views.chart.chart import Chart
from tests.oracles.trace_rules import violations

NS = "{http://www.w3.org/2000/svg}"
_TITLE = re.compile(r"([FIWB]) of stage (\d+), microbatch (\d+) on rank (\d+): (\S+) to (\S+); held ([^;]+)(?:; (.+))?")


@dataclass(frozen=True)
class Operation:
    """needs: the operation whose output it takes, or "". held: by its rank after it. None: the picture does not say."""

    rank: int
    name: str
    start: Fraction | None
    end: Fraction | None
    held: Fraction | None = None
    needs: str | None = None


@dataclass(frozen=True)
class Read:
    """operations: by rank, in order. messages: rank and instant of both ends. peaks: by rank, or nothing."""

    operations: list[Operation]
    messages: list[tuple[int, Fraction, int, Fraction]] | None = None
    peaks: list[Fraction] | None = None


def exact(value: float) -> Fraction:
    """Return the number that a floating point number is nearest to."""
    return Fraction(value).limit_denominator(10_000)


def of_table(made: Chart) -> Read:
    """Return a line an operation."""
    lines = csv.DictReader(io.StringIO(spreadsheet.csv(made)))
    steps: dict[int, int] = {}
    found = []
    for line in lines:
        rank = int(line["rank"])
        steps[rank] = steps.get(rank, 0) + 1
        assert int(line["step"]) == steps[rank]
        times = (Fraction(line[key]) if line[key] else None for key in ("start", "end"))
        name = f"{line['op']}{line['stage']}.{line['microbatch']}"
        found.append(Operation(rank, name, *times, Fraction(line["held"]), line["needs"]))
    return Read(found)


def of_graph(made: Chart) -> Read:
    """Return the nodes and edges of GraphML; order and pair edges join neighbours of a rank and nothing else."""
    read = nx.parse_graphml(graph.graphml(made))
    nodes = {name: about for name, about in read.nodes(data=True) if about["op"]}
    needs, messages, beside = dict.fromkeys(nodes, ""), [], []
    for source, target, about in read.edges(data=True):
        one, two, kind = nodes.get(source, {}), nodes.get(target, {}), about["kind"]
        assert (kind == "message") == ("latency" in about)
        if kind in ("needs", "message"):
            assert (kind == "message") == (one["rank"] != two["rank"])
            needs[target] = one["label"]
        if kind == "message":
            messages.append((one["rank"], exact(one["end"]), two["rank"], exact(one["end"]) + exact(about["latency"])))
        if kind in ("order", "pair"):
            beside.append(((one["rank"], one["step"] + 1), (two["rank"], two["step"])))
    ordered = sorted(nodes, key=lambda name: (nodes[name]["rank"], nodes[name]["step"]))
    assert sorted(one for one, _ in beside) == sorted(two for _, two in beside)
    assert len({two for _, two in beside}) == len(nodes) - len({about["rank"] for about in nodes.values()})
    found = []
    for name in ordered:
        about = nodes[name]
        assert about["label"] == f"{about['op']}{about['stage']}.{about['microbatch']}"
        times = (None if about[key] == -1 else exact(about[key]) for key in ("start", "end"))
        found.append(Operation(about["rank"], about["label"], *times, None, needs[name]))
    return Read(found, messages)


def of_dot(made: Chart) -> Read:
    """Return the nodes of DOT, in their order; the edges are looks."""
    found = []
    for rank, label, told in re.findall(r'\tr(\d+)s\d+ \[label="([^"]+)".*?tooltip="([^"]+)"\]', graph.dot(made)):
        times = re.fullmatch(rf"rank {rank}, from (\S+) to (\S+)", told)
        assert times or told == "never runs"
        start, end = (Fraction(times[1]), Fraction(times[2])) if times else (None, None)
        found.append(Operation(int(rank), label, start, end))
    return Read(found)


def of_trace(made: Chart) -> Read:
    """Return the slices, arrows and counters; the rules of the format hold. What never runs is not there."""
    read = json.loads(trace.render(made))
    assert violations(read) == []
    unit, events = read["otherData"]["microseconds_per_unit"], read["traceEvents"]
    found = []
    for x in events:
        if x["ph"] in "Xi" and x["tid"] == 0 and x["cat"] != "deadlock":
            begin, length = Fraction(x["ts"], unit), Fraction(x.get("dur", 0), unit)
            parts = [x["args"], *([x["args"]["with"]] if "with" in x["args"] else [])]
            names = [f"{part['op']}{part['stage']}.{part['microbatch']}" for part in parts]
            assert x["name"] == "+".join(names)
            for name, part in zip(names, parts, strict=True):
                held, needs = exact(part["held"]), part.get("needs", "")
                found.append(Operation(x["pid"], name, begin, begin + length, held, needs))
    sends, receives = ({x["id"]: x for x in events if x["ph"] == kind and x["cat"] == "message"} for kind in "sf")
    assert set(sends) == set(receives)
    ends = ((sends[n], receives[n]) for n in sends)
    messages = [(a["pid"], Fraction(a["ts"], unit), b["pid"], Fraction(b["ts"], unit)) for a, b in ends]
    return Read(found, messages, list(_counted(events)))


def _counted(events: list[dict[str, Any]]) -> Iterator[Fraction]:
    """Yield the most that the counter of each rank says."""
    for _, of in groupby((x for x in events if x["ph"] == "C"), key=lambda x: x["pid"]):
        yield max(exact(x["args"]["units"]) for x in of)


def columns(page: str) -> dict[str, Any]:
    """Return the columns of a page, by name."""
    told = re.findall(r'<script type="text/plain" id="column-(\w+)" data-type="(\w\d)">(.*?)<', page)
    return {name: np.frombuffer(base64.b64decode(data), dtype=f"<{kind}") for name, kind, data in told}


def of_page(made: Chart) -> Read:
    """Return the data of a page, which its scripts draw."""
    page = html.render(made)
    meta = json.loads(re.search(r'id="meta">(.*?)</script>', page)[1])  # type: ignore[index]
    told, letters, part = columns(page), list(meta["fill"]), Fraction(*meta["part"])
    triples = zip(told["kind"], told["stage"], told["microbatch"], strict=True)
    names = [f"{letters[kind]}{stage}.{i}" for kind, stage, i in triples]
    ranks = np.repeat(np.arange(len(meta["ran"])), np.diff(meta["start"])).tolist()
    begin, end = ([Fraction(int(x), meta["scale"]) for x in told[key]] for key in ("begin", "end"))
    found, messages = [], []
    for i, (rank, source) in enumerate(zip(ranks, told["needs"].tolist(), strict=True)):
        ran = i < meta["start"][rank] + meta["ran"][rank]
        times = (begin[i], end[i]) if ran else (None, None)
        needs = names[source] if source >= 0 else ""
        found.append(Operation(rank, names[i], *times, int(told["held"][i]) * part, needs))
        if ran and source >= 0 and ranks[source] != rank:
            late = Fraction(meta["message"][told["stage"][source]], meta["scale"])
            messages.append((ranks[source], end[source], rank, end[source] + late))
    return Read(found, messages)


def of_figure(made: Chart) -> Read:
    """Return the rectangles with their titles, which stand at their times; a pair is two halves, F above. An arrow goes
    to the start of the operation that takes it; the steps under a rank are on one scale. Zero time is not drawn.
    """
    root = ElementTree.fromstring(svg.render(made, svg.Svg(messages=True, memory=True)))
    marks = [x for x in root.iter(f"{NS}text") if x.get("class") == "t c"]
    (first, x0), (last, x1) = ((Fraction(x.text or ""), Fraction(x.attrib["x"])) for x in (marks[0], marks[-1]))
    pixels = (x1 - x0) / (last - first)

    def at(time: Fraction) -> Fraction:
        return x0 + (time - first) * pixels

    groups = [(x.find(f"{NS}title"), x.find(f"{NS}rect"), x.find(f"{NS}text")) for x in root.iter(f"{NS}g")]
    rows = [float(x.attrib["y"]) - 16 for x in root.iter(f"{NS}text") if (x.text or "").startswith("rank ")]
    found: list[Operation] = []
    whole = max(float(box.attrib["height"]) for _, box, _ in groups if box is not None)
    for title, box, label in groups:
        if title is None or box is None:
            continue
        told = _TITLE.fullmatch(title.text or "")
        assert told is not None, title.text
        start, end = Fraction(told[5]), Fraction(told[6])
        left, width = Fraction(box.attrib["x"]), Fraction(box.attrib["width"])
        assert abs(left - at(start)) < 0.05 and abs(left + width - at(end)) < 0.05
        names = (told[3], f"{told[1]}{told[3]}", f"{told[1]}{told[2]}.{told[3]}")
        assert label is None or label.text in names
        rank, height = int(told[4]), float(box.attrib["height"])
        behind = [(x.rank, x.start, x.end) for x in found[-1:]] == [(rank, start, end)]
        assert height == whole or 2 * height == whole
        assert float(box.attrib["y"]) == rows[rank] + height * behind
        found.append(Operation(rank, f"{told[1]}{told[2]}.{told[3]}", start, end, Fraction(told[7])))
    instants = sorted({x.start or Fraction(0) for x in found} | {x.end or Fraction(0) for x in found})

    def read(x: str, y: str) -> tuple[int, Fraction]:
        time = min(instants, key=lambda instant: abs(at(instant) - Fraction(x)))
        assert abs(at(time) - Fraction(x)) < 0.05
        return next(rank for rank, top in enumerate(rows) if top - 0.01 <= float(y) <= top + 24.01), time

    paths = [x for x in root.iter(f"{NS}path") if x.get("class") in ("f", "g")]
    points = [re.findall(r"[ML](\S+) ([\d.]+)", x.attrib["d"]) for x in paths]
    messages = [(*read(*one), *read(*two)) for one, two in points]
    drawn = list(root)
    curves = [(x, drawn[i + 1]) for i, x in enumerate(drawn) if x.get("class") == "m"]
    peaks = [Fraction(text.text or "") for _, text in curves]
    if made.analysis.standstill is None:  # the peak of what would run else
        for (curve, _), peak in zip(curves, peaks, strict=True):
            heights = [float(y) for y in re.findall(r"V([\d.]+)", curve.attrib["d"])]
            assert abs(heights[-1] - min(heights) - 19 * float(peak / (max(peaks) or 1))) < 0.01
    return Read(found, messages, peaks)


READERS: dict[str, Callable[[Chart], Read]] = {
    "csv": of_table,
    "graphml": of_graph,
    "dot": of_dot,
    "trace": of_trace,
    "html": of_page,
    "svg": of_figure,
}
