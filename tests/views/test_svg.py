"""Figures, read back from the SVG and compared with the slow simulation (`tests.oracles.simulate`).

Each operation is a group with a title and a rectangle; the numbers under the axis give the scale.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings

import pipesched
from pipesched.__main__ import main
from pipesched.chart.chart import chart
from pipesched.diagnostics import PipeschedError
from pipesched.model.costs import Costs
from pipesched.model.ops import Op
from pipesched.model.schedule import Schedule
from pipesched.views.svg import MAX_OPS, Svg, render
from tests.core.test_show import BROKEN, SIZES, played
from tests.depth import deep
from tests.oracles import simulate

GOLDEN = Path(__file__).parents[1] / "golden"
CALM = settings(derandomize=True, deadline=None, max_examples=deep(20))
NS = "{http://www.w3.org/2000/svg}"
TITLE = re.compile(r"([FIWB]) of stage (\d+), microbatch (\d+) on rank (\d+): (\S+) to (\S+); held ([^;]+)(?:; (.+))?")
IDS = [name for name, _ in SIZES]


@dataclass(frozen=True)
class Box:
    """An operation as drawn: its title, and its rectangle in units of time, and in pixels down the page."""

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
    """Pixels at time 0 and pixels per unit, from the numbers under the axis."""
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


def arrows(root: ElementTree.Element) -> list[tuple[str, Fraction, Fraction]]:
    """Class, and the times of both ends, of every arrow of a figure."""
    zero, pixels = scale(root)
    return sorted(
        (path.attrib["class"], *((Fraction(x) - zero) / pixels for x in re.findall(r"[ML]([\d.]+)", path.attrib["d"])))
        for path in root.iter(f"{NS}path")
        if path.attrib.get("class") in ("f", "g")
    )


def stairs(path: str) -> list[float]:
    """The heights above the base of a closed path of horizontals and verticals."""
    base = float(re.match(r"M\S+ ([\d.]+)", path)[1])  # type: ignore[index]
    return [base - float(y) for y in re.findall(r"H[\d.]+V([\d.]+)", path)]


def near(one: Fraction, two: Fraction) -> bool:
    """To a thousandth of a pixel: times that no column fits."""
    return abs(one - two) < Fraction(1, 500)


@pytest.mark.parametrize("costs", ["F=1", "F=1.5,I=7/6,W=2/3,C=1/4"])
@pytest.mark.parametrize(("name", "sizes"), SIZES, ids=[name for name, _ in SIZES])
def test_a_figure_is_the_simulated_run(name: str, sizes: dict[str, int], costs: str) -> None:
    """Each operation once, its rectangle and tooltip from its start to its end, the halves of an overlap one above the
    other; an arrow for each message; the highest step of a rank is its peak, on one scale for all.
    """
    schedule = pipesched.load(name, **sizes)
    text = render(chart(schedule, Costs.parse(costs)), Svg(messages=True, memory=True))
    root, drawn, run = ElementTree.fromstring(text), boxes(text), played(schedule, Costs.parse(costs))

    known = {
        (x.op.name, x.stage, x.microbatch, rank): (run.start[rank, i], run.end[rank, i])
        for rank, order in enumerate(run.orders)
        for i, x in enumerate(order)
    }
    assert {(b.op, b.stage, b.microbatch, b.rank): b.told for b in drawn} == known and len(drawn) == len(schedule)
    assert all(near(b.begin, b.told[0]) and near(b.end, b.told[1]) for b in drawn)
    assert all(f"{b.op}{b.microbatch}".endswith(b.label or "") for b in drawn) and any(b.label for b in drawn)
    whole = max(b.height for b in drawn)
    halves = [b for b in drawn if b.height < whole]
    assert len(halves) == 2 * (len(schedule) - schedule.slots)
    for one, two in zip(halves[::2], halves[1::2], strict=True):
        assert (one.op, two.op) == ("F", "B") and two.y == one.y + one.height and 2 * one.height == whole

    sent = sorted(
        ("f" if run.orders[spot[0]][spot[1]].op is Op.F else "g", run.end[source], run.start[spot])
        for spot, source in simulate.producers(run.orders, schedule.stages).items()
        if source[0] != spot[0]
    )
    for (kind, *ends), (wanted, *times) in zip(arrows(root), sent, strict=True):
        assert kind == wanted and all(map(near, ends, times))

    curves = [stairs(path.attrib["d"]) for path in root.iter(f"{NS}path") if path.attrib.get("class") == "m"]
    peaks = simulate.held(run, Fraction(0), Fraction(1))
    tallest = max(map(max, curves))
    for curve, peak in zip(curves, peaks, strict=True):
        assert max(curve) == pytest.approx(tallest * peak / max(peaks), abs=0.01) and curve[-1] == 0


@CALM
@given(BROKEN)
def test_broken_schedules_are_drawn_as_far_as_they_run(schedule: Schedule) -> None:
    """An operation with a time (`test_timeline`) is drawn there, as often as it is in the list; others are not."""
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


def test_a_large_schedule_is_refused_unless_forced(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Above 50,000 operations: PS815, status 2 and no file; --force draws every one of them."""
    large = ["show", "gpipe", "--p", "8", "--m", "3200", "-o", "large.svg"]
    assert main(large) == 2
    assert "PS815" in capsys.readouterr().err and not list(folder.iterdir())
    assert main([*large, "--force"]) == 0
    assert (folder / "large.svg").read_text("utf-8").count("<rect") > MAX_OPS
    with pytest.raises(PipeschedError, match="PS815"):
        render(chart(pipesched.load("gpipe", p=8, m=3200)))
