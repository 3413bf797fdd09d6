"""The graph of dependencies is laid out by `dot`, refused if it is too large to read, and its names are escaped."""

from __future__ import annotations

import json
import shutil
import subprocess
import xml.etree.ElementTree as ET

import pytest

import pipesched
from pipesched.diagnostics import PipeschedError
from pipesched.views import graph
from pipesched.views.chart.chart import chart

needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="the program dot of Graphviz is not installed")


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
    """The drawing is None, not an error: the caller has DOT text."""
    monkeypatch.setenv("PATH", "")
    drawn = chart(pipesched.load("gpipe", p=2, m=2))
    assert graph.drawn(drawn, "svg") is None and graph.drawn(drawn, "png") is None
    assert graph.dot(drawn).startswith("digraph")


def test_a_graph_that_nobody_could_read_is_refused_unless_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    """PS815 is reported above the limit, with the way out; GraphML has no such limit."""
    assert graph.MAX_OPS == 3_000
    monkeypatch.setattr(graph, "MAX_OPS", 31)
    drawn = chart(pipesched.load("1f1b", p=4, m=4))
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
