"""Helpers for the tests of the page: schedules to open, points to inspect, and text to read."""

from __future__ import annotations

import json
from collections.abc import Callable

from pipesched.model.ops import Compute
from pipesched.views.chart.chart import Chart
from tests.oracles import simulate
from tests.oracles.simulate import Played, rows
from tests.readers.browser import Page

Opened = Callable[[Chart], Page]
ALL_SIX = {
    "gpipe": {"p": 4, "m": 8},
    "1f1b": {"p": 4, "m": 8},
    "interleaved": {"p": 4, "v": 2, "m": 8},
    "zb_h1": {"p": 4, "m": 8},
    "zb_h2": {"p": 4, "m": 8},
    "dualpipe": {"p": 8, "m": 20},
}


def play(drawn: Chart) -> Played:
    return simulate.run(drawn.schedule, rows(drawn.analysis.costs, drawn.schedule.stages))


def place(page: Page, index: int) -> tuple[float, float]:
    """Return the middle of an operation's box, in the window."""
    x, y = page.evaluate(f"pipesched.middle({index})")
    return float(x), float(y)


def tip(page: Page) -> list[str]:
    text = page.evaluate("document.getElementById('tip').hidden ? '' : document.getElementById('tip').textContent")
    return str(text).split("\n")


def label(x: Compute) -> str:
    return f"{x.op.name}{x.stage}.{x.microbatch}"


def colours(page: Page, points: list[tuple[float, float]]) -> list[tuple[int, ...]]:
    """Return the colours at points of the window, both layers together."""
    script = """(() => { const box = document.getElementById('stage').getBoundingClientRect();
      const all = document.createElement('canvas'), base = document.getElementById('base');
      all.width = base.width; all.height = base.height; const
      to = all.getContext('2d', { willReadFrequently: true });
      to.drawImage(base, 0, 0); to.drawImage(document.getElementById('over'), 0, 0);
      const at = (x, y) => [...to.getImageData(Math.round(x - box.left), Math.round(y - box.top), 1, 1).data];
      return %s.map(([x, y]) => at(x, y)); })()"""
    return [tuple(colour[:3]) for colour in page.evaluate(script % json.dumps(points))]
