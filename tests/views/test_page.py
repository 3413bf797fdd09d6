"""The page in a real headless Chromium: the effects of pointer and click.

Its expected texts come from a schedule's lists and from a run played by hand (`simulate.py`).
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

import pipesched
from pipesched.chart.chart import chart
from pipesched.model.costs import Costs
from pipesched.model.numbers import shown
from pipesched.model.ops import Compute, Op
from pipesched.model.placement import linear
from pipesched.model.schedule import Schedule
from pipesched.views import html
from pipesched.views.causes import causes, critical_path
from tests.makers import strategies
from tests.oracles import simulate
from tests.oracles.simulate import rows
from tests.readers.drawings import columns
from tests.readers.pages import ALL_SIX, Opened, colours, label, place, play, tip


def test_every_operation_has_its_place_where_there_are_many() -> None:
    """Line and column are those of the operation's span, also if all places are encoded at once."""
    schedule = pipesched.load("dualpipe", p=4, m=256)
    found = columns(html.render(chart(schedule)))
    for index in range(0, len(schedule), max(1, len(schedule) // 40)):
        span = schedule.origin.place(index).span
        assert span is not None and (found["line"][index], found["column"][index]) == (span.line, span.column)


@pytest.mark.parametrize("name", ["zb_h1", "dualpipe"])
def test_the_tip_tells_the_operation_under_the_pointer(opened: Opened, name: str) -> None:
    """For each operation: name, place in the schedule, simulated start and end, source line, its inputs, and its rank's
    memory.
    """
    drawn = chart(pipesched.load(name, **ALL_SIX[name]), Costs.parse("F=1,I=3/2,W=1,C=1/2"))
    page, played = opened(drawn), play(drawn)
    schedule, latency = drawn.schedule, Fraction(1, 2)
    made_by = simulate.producers(played.orders, schedule.stages)
    for index in range(0, len(schedule), 7):
        rank, x = int(schedule.rank[index]), schedule[index]
        i = index - int(schedule.start[rank])
        page.mouse("mouseMoved", *place(page, index))
        told = tip(page)
        assert told[0].split()[0] == label(x)
        assert told[1].startswith(f"stage {x.stage}, microbatch {x.microbatch}, rank {rank}, step {i + 1}")
        assert told[2] == f"start {shown(played.start[rank, i])}, end {shown(played.end[rank, i])}"
        if (rank, i) in made_by:
            there, j = made_by[rank, i]
            done = played.end[there, j]
            where = f"rank {there}, sent at {shown(done)}" if there != rank else "this rank, done at"
            assert told[3].startswith(f"waits for {label(played.orders[there][j])} on {where}")
            assert there == rank or told[3].endswith(f"here at {shown(done + latency)}")
        else:
            assert told[3] == "waits for nothing: the first stage"
        assert f"rank {rank} holds {shown(_held(played.orders[rank][: i + 1]))} " in told[5]
        span = schedule.origin.place(index).span
        assert span is not None and told[6].startswith(str(span))
        assert " ".join(span.source.line(span.line).split()) == told[7]


def _held(done: list[Compute]) -> Fraction:
    """In activations of one stage: there are as many stages as ranks."""
    return Fraction(sum(x.op is Op.F for x in done) - sum(x.op in (Op.W, Op.B) for x in done))


def test_the_parts_of_a_pair_are_told_apart(opened: Opened) -> None:
    """The upper half of a slot is its F, the lower half its B."""
    drawn = chart(pipesched.load("dualpipe", p=8, m=20))
    page, second = opened(drawn), np.flatnonzero(drawn.schedule.second)
    for index in second[:: len(second) // 8].tolist():
        (x, upper), (same, lower) = place(page, index - 1), place(page, index)
        assert x == same and upper < lower
        for at, y in ((index - 1, upper), (index, lower)):
            page.mouse("mouseMoved", x, y)
            assert tip(page)[0].split()[0] == label(drawn.schedule[at])


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


@pytest.mark.parametrize(("name", "costs"), [("interleaved", "F=1"), ("dualpipe", "F=1,I=3/2,W=1/2,C=1/3")])
def test_the_critical_path_has_no_holes(opened: Opened, name: str, costs: str) -> None:
    """From 0 to the makespan: each slot starts when the previous one on its rank ends, or its message arrives; work and
    messages add up.
    """
    drawn = chart(pipesched.load(name, **ALL_SIX[name]), Costs.parse(costs))
    page, played = opened(drawn), play(drawn)
    page.click(*place(page, 0))
    path = page.evaluate("pipesched.marked.path")
    spots = [(int(r := drawn.schedule.rank[i]), i - int(drawn.schedule.start[r])) for i in path]
    latency = rows(drawn.analysis.costs, drawn.schedule.stages)["C"]
    assert latency is not None
    assert played.start[spots[0]] == 0 and played.end[spots[-1]] == played.makespan
    for one, two in pairwise(spots):
        late = latency[0] if one[0] != two[0] else 0
        assert played.start[two] == played.end[one] + late
    told = page.evaluate("document.getElementById('detail').textContent")
    ticks = drawn.analysis.costs.ticks(drawn.schedule.stages)
    heads = critical_path(drawn.times, causes(drawn.schedule, drawn.analysis.dependencies, drawn.times, ticks))
    assert path == [i - int(drawn.schedule.joined[i]) for i in heads]  # as `why` tells it
    assert f"critical path: {len(path)} operations" in told and f"length {shown(played.makespan)} =" in told


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


def test_a_shifted_click_shows_the_path_to_an_operation(opened: Opened) -> None:
    """The path ends at the operation, and its length is the operation's end."""
    drawn = chart(pipesched.load("1f1b", p=4, m=8))
    page, played = opened(drawn), play(drawn)
    index = 9
    page.click(*place(page, index), modifiers=8)
    assert page.evaluate("pipesched.marked.path.at(-1)") == index
    told = page.evaluate("document.getElementById('detail').textContent")
    assert f"path to {label(drawn.schedule[index])}:" in told and f"length {played.end[0, index]} =" in told


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
