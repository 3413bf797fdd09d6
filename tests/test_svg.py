"""Figures: what is drawn is read back from the SVG and held against the slow simulation (`tests.oracles.simulate`).

Each operation is a group with a title and a rectangle; the numbers under the axis give the scale.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipesched
from pipesched.__main__ import main
from pipesched.chart.axis import Viewport
from pipesched.chart.chart import chart
from pipesched.chart.slots import outline
from pipesched.diagnostics import PipeschedError
from pipesched.model.costs import Costs
from pipesched.model.ops import Op
from pipesched.model.schedule import Schedule
from pipesched.views.svg import MAX_OPS, Svg, render
from tests.depth import deep
from tests.makers import strategies
from tests.oracles import simulate
from tests.oracles.simulate import Played, rows
from tests.test_show import BROKEN, SIZES, played

GOLDEN = Path(__file__).parent / "golden"
CALM = settings(derandomize=True, deadline=None, max_examples=deep(20))
NS = "{http://www.w3.org/2000/svg}"
TITLE = re.compile(r"([FIWB]) of stage (\d+), microbatch (\d+) on rank (\d+): (\S+) to (\S+); held ([^;]+)(?:; (.+))?")
IDS = [name for name, _ in SIZES]


@dataclass(frozen=True)
class Box:
    """An operation as drawn: what its title says, and its rectangle in units of time, and in pixels down the page."""

    op: str
    stage: int
    microbatch: int
    rank: int
    told: tuple[Fraction, Fraction]
    begin: Fraction
    end: Fraction
    y: float
    height: float
    label: str | None
    place: str | None


def scale(root: ElementTree.Element) -> tuple[Fraction, Fraction]:
    """Pixels at time 0 and pixels a unit, from the numbers under the axis."""
    marks = [
        (Fraction(mark.text or ""), Fraction(mark.attrib["x"]))
        for mark in root.iter(f"{NS}text")
        if mark.attrib.get("class") == "t c"
    ]
    (first, x0), (last, x1) = marks[0], marks[-1]
    pixels = (x1 - x0) / (last - first)
    return x0 - first * pixels, pixels


def boxes(text: str) -> list[Box]:
    """Every operation of a figure in the default style."""
    root = ElementTree.fromstring(text)
    zero, pixels = scale(root)
    found = []
    for group in root.iter(f"{NS}g"):
        title, box = group.find(f"{NS}title"), group.find(f"{NS}rect")
        if title is None or box is None:
            continue
        told = TITLE.fullmatch(title.text or "")
        assert told is not None, title.text
        x, width = Fraction(box.attrib["x"]), Fraction(box.attrib["width"])
        label = group.find(f"{NS}text")
        found.append(
            Box(
                told[1],
                *(int(told[i]) for i in (2, 3, 4)),
                (Fraction(told[5]), Fraction(told[6])),
                (x - zero) / pixels,
                (x + width - zero) / pixels,
                float(box.attrib["y"]),
                float(box.attrib["height"]),
                None if label is None else label.text,
                told[8],
            )
        )
    return found


def expected(run: Played) -> dict[tuple[str, int, int, int], tuple[Fraction, Fraction]]:
    """When each operation runs, and where, by the simulation."""
    return {
        (x.op.name, x.stage, x.microbatch, rank): (run.start[rank, i], run.end[rank, i])
        for rank, order in enumerate(run.orders)
        for i, x in enumerate(order)
        if (rank, i) in run.end
    }


@pytest.mark.parametrize(("name", "sizes"), SIZES, ids=IDS)
def test_every_operation_is_drawn_when_it_runs(name: str, sizes: dict[str, int]) -> None:
    """Each operation once, its rectangle and its tooltip from its start to its end, for all published schedules."""
    schedule = pipesched.load(name, **sizes)
    drawn = boxes(render(chart(schedule)))

    assert {(b.op, b.stage, b.microbatch, b.rank): (b.begin, b.end) for b in drawn} == expected(played(schedule))
    assert len(drawn) == len(schedule) and all((b.begin, b.end) == b.told for b in drawn)
    assert all(b.label == f"{b.op}{b.microbatch}" for b in drawn)


@pytest.mark.parametrize(
    ("name", "forwards", "end"),
    [
        ("1f1b", [0, 1, 2, 3, 12, 15, 18, 21], 33),
        ("zb_h1", [0, 1, 2, 3, 9, 12, 15, 18], 27),
        ("zb_h2", [0, 1, 2, 3, 4, 5, 6, 9], 24),
    ],
)
def test_rank_0_of_the_papers_figures(name: str, forwards: list[int], end: int) -> None:
    """Four ranks, eight microbatches, unit times: the forwards of the first rank start as in arXiv:2401.10241.

    Its first backward comes after four forwards and the backwards of three ranks: at 4 + 3 tB or 4 + 3 tI; the warm-up
    of ZB-H2 fills the time until then. From there on a forward starts every tF + tI + tW.
    """
    drawn = [b for b in boxes(render(chart(pipesched.load(name, p=4, m=8)))) if b.rank == 0]

    assert [b.begin for b in drawn if b.op == "F"] == forwards
    assert max(b.end for b in drawn) == end


@CALM
@given(strategies.schedules())
def test_random_schedules_are_drawn_when_they_run(schedule: Schedule) -> None:
    """At times that no column fits: to a thousandth of a pixel in the rectangle, exactly in the tooltip."""
    costs = Costs.parse("F=1.5,I=7/6,W=2/3,C=1/4")
    drawn = boxes(render(chart(schedule, costs)))
    run = simulate.run(schedule, rows(costs, schedule.stages))

    assert {(b.op, b.stage, b.microbatch, b.rank): b.told for b in drawn} == expected(run)
    assert all(abs(b.begin - b.told[0]) < Fraction(1, 1000) > abs(b.end - b.told[1]) for b in drawn)


@CALM
@given(BROKEN)
def test_broken_schedules_are_drawn_as_far_as_they_run(schedule: Schedule) -> None:
    """What has a time (`tests.test_timeline`) is drawn there, as often as it is in the list; what has none is not."""
    picture = chart(schedule)
    times = zip(picture.times.start.tolist(), picture.times.end.tolist(), strict=True)
    known = sorted(
        (x.op.name, x.stage, x.microbatch, int(schedule.rank[i]), start, end)
        for i, (start, end) in enumerate(times)
        if start >= 0
        for x in [schedule[i]]
    )

    drawn = boxes(render(picture)) if known else []
    assert sorted((b.op, b.stage, b.microbatch, b.rank, *b.told) for b in drawn) == known


def test_an_overlap_is_two_halves_of_one_slot() -> None:
    """The parts of a pair share their time and divide the height of the row, F above."""
    schedule = pipesched.load("dualpipe", p=8, m=20)
    drawn = boxes(render(chart(schedule)))
    whole = max(b.height for b in drawn)
    halves = [b for b in drawn if b.height < whole]

    assert len(halves) == 2 * (len(schedule) - schedule.slots)
    for one, two in zip(halves[::2], halves[1::2], strict=True):
        assert (one.op, two.op) == ("F", "B") and (one.begin, one.end) == (two.begin, two.end)
        assert two.y == one.y + one.height and one.height + two.height == whole


@pytest.mark.parametrize(("name", "sizes"), SIZES, ids=IDS)
def test_messages_go_from_the_end_of_a_producer_to_the_start_of_a_consumer(name: str, sizes: dict[str, int]) -> None:
    """One arrow for each message of the program, blue for activations; without --messages there is none."""
    schedule = pipesched.load(name, **sizes)
    root = ElementTree.fromstring(render(chart(schedule), Svg(messages=True)))
    zero, pixels = scale(root)
    arrows = sorted(
        (path.attrib["class"], *((Fraction(x) - zero) / pixels for x in re.findall(r"[ML]([\d.]+)", path.attrib["d"])))
        for path in root.iter(f"{NS}path")
        if path.attrib.get("class") in ("f", "g")
    )
    run = played(schedule)
    made_by = simulate.producers(run.orders, schedule.stages)
    known = sorted(
        ("f" if run.orders[spot[0]][spot[1]].op is Op.F else "g", run.end[source], run.start[spot])
        for spot, source in made_by.items()
        if source[0] != spot[0]
    )

    assert arrows == known
    assert 'class="f"' not in render(chart(schedule))


def arrows(text: str, pixels: Fraction) -> set[tuple[str, float, float, float, float]]:
    """Class, and both ends: ticks from the left edge of the picture, pixels from its top."""
    root = ElementTree.fromstring(text)
    zero, _ = scale(root)
    return {
        (path.attrib["class"], *(float((Fraction(x) - zero) / pixels if i % 2 == 0 else Fraction(x)) for i, x in found))
        for path in root.iter(f"{NS}path")
        if path.attrib.get("class") in ("f", "g")
        for found in [list(enumerate(re.findall(r"-?[\d.]+", path.attrib["d"])))]
    }


@pytest.mark.parametrize(("begin", "end"), [(4, 11), (6, 7), (0, 5)])
def test_a_window_cuts_arrows_and_leaves_none_out(begin: int, end: int) -> None:
    """Of every arrow of the whole picture the part within the viewport, on the same line; a head where it arrives."""
    picture, pixels = chart(pipesched.load("1f1b", p=4, m=8), Costs.parse("F=1,I=1,W=1,C=3/2")), Fraction(10)
    whole = arrows(render(picture, Svg(messages=True, pixels=pixels)), pixels)
    viewport = Viewport(Fraction(begin), Fraction(end))
    low, high = begin * picture.scale, end * picture.scale
    text = render(picture, Svg(messages=True, pixels=pixels, viewport=viewport))
    known = {
        (kind, a, top + (base - top) * (a - x0) / (x1 - x0), b, top + (base - top) * (b - x0) / (x1 - x0), x1 <= high)
        for kind, x0, top, x1, base in whole
        for a, b in [(max(x0, low), min(x1, high))]
        if a < b
    }
    drawn = arrows(text, pixels)
    assert (0 < len(known) < len(whole) and any(x0 < low for _, x0, _, x1, _ in whole if x1 > low)) or begin == 0
    assert len(drawn) == len(known)
    for one, two in zip(sorted(drawn), sorted(known), strict=True):
        assert one[0] == two[0] and one[1:] == pytest.approx(two[1:5], abs=0.01)
    assert text.count("marker-end") == sum(arrives for *_, arrives in known)


def stairs(path: str) -> list[tuple[float, float]]:
    """The corners of a closed path of horizontals and verticals: x, and the height above the base from there on."""
    base = float(re.match(r"M\S+ ([\d.]+)", path)[1])  # type: ignore[index]
    return [(float(x), base - float(y)) for x, y in re.findall(r"H([\d.]+)V([\d.]+)", path)]


@pytest.mark.parametrize(("name", "sizes"), SIZES, ids=IDS)
def test_the_curve_under_a_rank_is_what_it_holds(name: str, sizes: dict[str, int]) -> None:
    """Its highest step is the peak, on one scale for all ranks; where one goes as another comes there is no notch."""
    schedule = pipesched.load(name, **sizes)
    root = ElementTree.fromstring(render(chart(schedule), Svg(memory=True)))
    curves = [stairs(path.attrib["d"]) for path in root.iter(f"{NS}path") if path.attrib.get("class") == "m"]
    peaks = simulate.held(played(schedule), Fraction(0), Fraction(1))
    tallest = max(height for curve in curves for _, height in curve)

    for curve, peak in zip(curves, peaks, strict=True):
        assert max(height for _, height in curve) == pytest.approx(tallest * peak / max(peaks), abs=0.01)
        assert curve[-1][1] == 0
        assert all(one < two for (one, _), (two, _) in itertools.pairwise(curve[:-1]))  # the last one closes it


@CALM
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=12))
def test_the_line_of_a_curve_keeps_its_levels_and_its_peaks(steps: list[tuple[int, int]]) -> None:
    """After each instant what its last step leaves; and the highest of any stretch of time that holds the instant."""
    when, held = np.cumsum([gap for gap, _ in steps]), np.array([level for _, level in steps])
    line = list(zip(*(column.tolist() for column in outline(when, held)), strict=True))
    assert [x for x, _ in line] == sorted(x for x, _ in line) and len(line) <= len(steps)
    before = 0
    for instant in sorted(set(when.tolist())):
        own, kept = held[when == instant].tolist(), [level for x, level in line if x == instant]
        assert kept[-1] == own[-1] and len(kept) <= 2
        assert max(before, *kept) == max(before, *own)
        before = own[-1]


def test_a_window_cuts_at_its_ends() -> None:
    """What runs in the viewport is drawn, no further than its ends; the tooltips keep the true times."""
    drawn = boxes(render(chart(pipesched.load("1f1b", p=4, m=8)), Svg(viewport=Viewport(Fraction(11), Fraction(20)))))
    run = expected(played(pipesched.load("1f1b", p=4, m=8)))
    inside = {key: (max(b, 11), min(e, 20)) for key, (b, e) in run.items() if e > 11 and b < 20}

    assert {(b.op, b.stage, b.microbatch, b.rank): (b.begin, b.end) for b in drawn} == inside
    assert all(run[b.op, b.stage, b.microbatch, b.rank] == b.told for b in drawn)


def test_a_tooltip_names_the_line() -> None:
    """The place is that of the word in the file that made the operation."""
    lines = (GOLDEN.parent.parent / "schedules" / "1f1b.ps").read_text("utf-8").splitlines()
    for b in boxes(render(chart(pipesched.load("1f1b", p=4, m=8)))):
        assert b.place is not None
        name, line, column = b.place.split(":")
        assert name == "1f1b.ps" and lines[int(line) - 1][int(column) - 1] == b.op


def test_the_file_is_alone_and_always_the_same(tmp_path: Path) -> None:
    """No script, nothing to fetch, one namespace; the same bytes from every process."""
    made = []
    for seed in ("1", "2"):
        file = tmp_path / f"{seed}.svg"
        command = [sys.executable, "-m", "pipesched", "show", "dualpipe", "--p", "4", "--m", "8", "--memory"]
        env = {"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin"}
        subprocess.run([*command, "--messages", "-o", str(file)], env=env, check=True, timeout=60)
        made.append(file.read_bytes())

    assert made[0] == made[1]
    text = made[0].decode("utf-8").replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"http|<script|href|@import|url\((?!#)", text)


def test_the_golden_figure(update_golden: bool) -> None:
    """The figure of the guide, with everything on it, byte for byte."""
    file = GOLDEN / "show_zb_h1.svg"
    text = render(chart(pipesched.load("zb_h1", p=4, m=8)), Svg(messages=True, memory=True))
    if update_golden:
        file.write_text(text, "utf-8")
    assert text == file.read_text("utf-8")


def test_a_schedule_that_stops_has_no_rectangle_for_what_never_runs() -> None:
    """Two ranks that wait for each other: the forward before that is drawn, and the title says where it stops."""
    order = "rank 0: F0.0 B0.0 F0.1 B0.1\nrank 1: F1.1 B1.1 F1.0 B1.0\n"
    schedule = pipesched.load(pipesched.Source("stuck.txt", order))
    text = render(chart(schedule))

    assert [(b.op, b.rank) for b in boxes(text)] == [("F", 0)]
    assert "deadlock PS306 under every model: ranks 0 and 1 wait for each other; stops at 1" in text


def test_a_large_schedule_is_refused_unless_forced(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Above 50,000 operations: PS815, status 2 and no file; --force draws every one of them."""
    large = ["show", "gpipe", "--p", "8", "--m", "3200", "-o", "large.svg"]
    assert main(large) == 2
    assert "PS815" in capsys.readouterr().err and not list(folder.iterdir())
    assert main([*large, "--force"]) == 0
    assert (folder / "large.svg").read_text("utf-8").count("<rect") > MAX_OPS
    with pytest.raises(PipeschedError, match="PS815"):
        render(chart(pipesched.load("gpipe", p=8, m=3200)))
