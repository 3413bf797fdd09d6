"""On the page, in a real headless Chromium, the pointer and clicks show the operations, paths and memory of a schedule.

All text of a page has golden files; the expected content comes from a run simulated independently (`simulate.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import pipesched
from pipesched.model.costs import Costs
from pipesched.model.numbers import shown
from pipesched.model.ops import Compute, Op
from pipesched.model.schedule import Schedule
from pipesched.model.units import MILLISECONDS
from pipesched.views import html
from pipesched.views.chart.chart import Chart, chart
from tests.makers import strategies
from tests.makers.placements import linear
from tests.readers.browser import Page
from tests.readers.drawings import columns
from tests.readers.pages import ALL_SIX, Opened, colours, label, place, play, tip

GOLDEN = Path(__file__).parents[1] / "golden" / "said"


def test_every_operation_has_its_place_where_there_are_many() -> None:
    """Line and column are those of the operation's span, also if all places are encoded at once."""
    schedule = pipesched.load("dualpipe", p=4, m=256)
    found = columns(html.render(chart(schedule)))
    for index in range(0, len(schedule), max(1, len(schedule) // 40)):
        span = schedule.origin.place(index).span
        assert span is not None and (found["line"][index], found["column"][index]) == (span.line, span.column)


STUCK = "rank 0: F0.0 B0.0 F0.1 B0.1\nrank 1: F1.1 B1.1 F1.0 B1.0\n"
PAGES: dict[str, Callable[[], Chart]] = {  # pairs and messages that take time; a deadlock; copies; milliseconds
    "dualpipe": lambda: chart(pipesched.load("dualpipe", p=2, m=4), Costs.parse("F=1,I=3/2,W=1,C=1/2")),
    "stuck": lambda: chart(pipesched.load(pipesched.Source("stuck.txt", STUCK))),
    "copies": lambda: chart(pipesched.load("pipeoffload", p=2, v=2, m=2)),
    "ms": lambda: chart(pipesched.load("1f1b", p=2, m=2), replace(Costs.parse("F=10,B=21.5"), unit=MILLISECONDS)),
}


_HOVERED = """(() => {
  const stage = document.getElementById('stage'), box = stage.getBoundingClientRect(), said = [], idle = new Set();
  const at = (clientX, clientY) => {
    stage.dispatchEvent(new PointerEvent('pointermove', { clientX, clientY, pointerId: 1, bubbles: true }));
    return document.getElementById('tip').hidden ? '' : document.getElementById('tip').textContent;
  };
  const { meta, columns } = pipesched;
  meta.ran.forEach((ran, rank) => {
    for (let i = meta.start[rank]; i < meta.start[rank] + ran; i++)
      if (columns.end[i] > columns.begin[i]) said.push(at(...pipesched.middle(i)));
    for (let x = 70; x < 1270; x += 3) {
      const tip = at(box.left + x, box.top + pipesched.yOf(rank) + pipesched.barHeight() / 2);
      if (tip.startsWith('rank')) idle.add(tip);
    }
  });
  return [...said, ...idle];
})()"""


def said(page: Page, drawn: Chart) -> Iterator[str]:
    """Yield the tips over all operations and all idle time; what is below after clicks and keys, and what is chosen."""
    yield " ".join(page.evaluate("document.querySelector('header').textContent").split())
    yield from page.evaluate(_HOVERED)

    def chosen(done: str) -> str:
        names = "pipesched.marked.path.map(pipesched.labelOf).join(' ')"
        detail, path = page.evaluate(f"[document.getElementById('detail').textContent, {names}]")
        return f"== {done}\n{detail}\npath {path}"

    last = int(drawn.schedule.start[1]) + int(np.count_nonzero(drawn.times.start[drawn.part(1)] >= 0)) - 1
    for modifiers, name in ((0, "click"), (8, "shift + click")):
        page.click(*place(page, max(last, 0)), modifiers=modifiers)
        yield chosen(name)
    for key in ("Escape", "b", "b", "[", "]", "c", "Escape"):
        page.key(key)
        yield chosen(key)
    for text in ("B1.1", "F9.9", "1", "forward", ""):
        page.evaluate(
            f"(() => {{ const box = document.getElementById('find'); box.value = '{text}';"
            "box.dispatchEvent(new Event('change')); })()"
        )
        yield chosen(f"find {text}")


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_says_stays(opened: Opened, name: str, update_golden: bool) -> None:
    """To the letter, of all that there is to point at; and the times in tips are those of a run played by hand."""
    drawn = PAGES[name]()
    made = "\n\n".join(said(opened(drawn), drawn)) + "\n"
    file = GOLDEN / f"{name}.txt"
    if update_golden:
        file.write_text(made, "utf-8")
    assert made == file.read_text("utf-8")
    played = play(drawn) if name in ("dualpipe", "stuck") else None
    tips = re.findall(r"^(\w\d+\.\d+) .*\nstage .*, rank (\d+), step (\d+).*\nstart (.+), end (.+)$", made, re.M)
    assert len(tips) >= int(np.count_nonzero(drawn.times.end > drawn.times.start))
    for label_, rank, step, start, end in tips if played else ():
        spot = int(rank), int(step) - 1
        assert label(played.orders[spot[0]][spot[1]]) == label_
        assert (start, end) == (shown(played.start[spot]), shown(played.end[spot]))


def _held(done: list[Compute]) -> Fraction:
    """In activations of one stage: there are as many stages as ranks."""
    return Fraction(sum(x.op is Op.F for x in done) - sum(x.op in (Op.W, Op.B) for x in done))


@pytest.mark.parametrize("name", ["interleaved", "dualpipe"])
def test_a_click_shows_the_whole_way_of_a_microbatch(opened: Opened, name: str) -> None:
    """Every operation of the microbatch keeps its colour, all others pale; the footer counts them."""
    drawn = chart(pipesched.load(name, **ALL_SIX[name]))
    page, schedule = opened(drawn), drawn.schedule
    index = len(schedule) // 2
    chosen = int(schedule.microbatch[index])
    spots = [place(page, i) for i in range(len(schedule))]
    corners = [(x - 4, y - 5) for x, y in spots]  # next to the numbers and above the path
    before = colours(page, corners)
    page.click(*spots[index])
    page.mouse("mouseMoved", 640, 3)
    page.settle()
    way = schedule.microbatch == chosen
    kept = [one == two for one, two in zip(before, colours(page, corners), strict=True)]
    assert kept == way.tolist()
    told = page.evaluate("document.getElementById('detail').textContent")
    assert f"microbatch {chosen}: {np.count_nonzero(way)} operations on" in told
    page.key("Escape")
    assert colours(page, corners) == before


@pytest.mark.parametrize("low", [False, True])
def test_the_memory_of_a_rank_is_an_area(opened: Opened, low: bool) -> None:
    """Once: under its bar, or at the bottom if rows are too low, for the rank under the pointer. Its height over each
    operation is proportional to the memory then.
    """
    drawn = chart(pipesched.load("zb_h1", p=4, m=8))
    page, rank = opened(drawn), 1
    for _ in range(12 * low):
        page.key("{")
    order = drawn.schedule.order(rank)
    first = int(drawn.schedule.start[rank])
    spots = [place(page, first + i) for i in range(len(order))]
    page.mouse("mouseMoved", *spots[0])
    page.settle()
    above, below = page.evaluate(
        "(({ top, bottom }) => [top, bottom])(document.getElementById('stage').getBoundingClientRect())"
    )
    top, bar, row = page.evaluate(f"[pipesched.yOf({rank}), pipesched.barHeight(), pipesched.view.row]")
    strip = [float(y) for y in range(int(above + top + bar) + 3, int(above + top + row) - 1)]
    panel = [below - 68 + k for k in range(64)]
    paper = colours(page, [(5.0, below - 30)])[0]
    heights = {
        name: [sum(found != paper for found in colours(page, [(x, y) for y in column])) for x, _ in spots]
        for name, column in (("strip", strip), ("panel", panel))
    }
    assert any(heights["panel"]) == low != any(heights["strip"])
    # while an operation runs, what it frees at its end is still held: an F counts, a W does not yet
    during = [_held(order[:i]) + (order[i].op is Op.F) for i in range(len(order))]
    seen = heights["panel" if low else "strip"]
    for height, held in zip(seen, during, strict=True):
        assert height / max(seen) == pytest.approx(float(held / max(during)), abs=0.06)


def test_names_are_text_whatever_they_hold(opened: Opened) -> None:
    """Markup in a title or in a source line neither ends an element nor runs."""
    evil = "</script><script>console.error(1)</script><!-- <b>&amp;"
    page = opened(chart(pipesched.load("gpipe", p=2, m=2), title=evil))
    assert page.evaluate("document.getElementById('title').textContent").startswith(evil)
    assert page.evaluate("document.title") == f"{evil} p=2 m=2"


def test_broken_orders_open(opened: Opened) -> None:
    """Whatever is missing, twice, misplaced or stuck, even everything."""
    for seed in range(4):
        page = opened(chart(strategies.broken_schedule(seed)))
        page.mouse("mouseMoved", 600, 150)
        page.click(600, 150)
    opened(chart(Schedule.from_orders([[], []], linear(2, 1))))


def test_steps_inside_an_order_are_triangles(opened: Opened) -> None:
    """Below the end of each last backward of a batch, in the colour of the text, and named in its tip; not
    elsewhere.
    """
    drawn = chart(pipesched.load("pipedream", p=2, m=4))
    page, schedule = opened(drawn), drawn.schedule
    backward = schedule.op == Op.B
    corners = """(() => { const { left, top } = document.getElementById('stage').getBoundingClientRect();
      return pipesched.meta.start.slice(0, -1).flatMap((from, rank) =>
        Array.from({ length: pipesched.meta.start[rank + 1] - from }, (_, k) => pipesched.boxOf(from + k, rank)))
        .map(([x, y, w, h]) => [left + x + w, top + y + h]); })()"""
    ink = tuple(map(int, re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).color"))))
    found = colours(page, page.evaluate(corners))
    assert [colour == ink for colour in found] == backward.tolist()
    assert "triangles: STEP" in page.evaluate("document.getElementById('legend').textContent")
    for index in (int(np.argmax(backward)), 0):
        page.mouse("mouseMoved", *place(page, index))
        page.settle()
        assert ("a STEP follows it" in tip(page)) == bool(backward[index])
