"""In a plot of bubble against memory, points are at the right places, labels cover nothing, and axes have round
numbers."""

from __future__ import annotations

import random
import re
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.views.plot import Point, plot
from tests.insight.test_compare import exact, rows

pytestmark = pytest.mark.quick

SVG = "{http://www.w3.org/2000/svg}"


def test_the_plot_has_every_point_where_it_belongs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A mark for each row, farther right with more memory and lower with less bubble; names in the legend."""
    found = rows(capsys, "gpipe", "1f1b", "zb_h1", "--p", "4", "--m", "8,16", "--plot", "out.svg")
    root = ElementTree.fromstring((folder / "out.svg").read_text())
    marks = {}
    for group in root.iter(f"{SVG}g"):
        if (title := group.find(f"{SVG}title")) is not None:
            words = str(title.text).partition(":")[0]
            x, y = (float(at) for at in group.attrib["transform"][10:-1].split())
            marks[words] = (x, y)
    assert len(marks) == len(found) == 6
    spots = [(marks[f"{row['name']} p=4 m={row['parameters']['m']}"], row) for row in found]
    for (x, y), row in spots:
        for (other_x, other_y), other in spots:
            assert (x < other_x) == (exact(row["peak"]) < exact(other["peak"]))
            assert (y < other_y) == (exact(row["bubble_ratio"]) > exact(other["bubble_ratio"]))
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert {"gpipe", "1f1b", "zb_h1"} <= set(texts)


def test_a_plot_is_never_named_what_it_is_not(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SVG in a .png would not open: status 2 is reported before any work, and no file is written."""
    assert main(["compare", "gpipe", "--p", "2", "--plot", "a.png"]) == 2
    told = capsys.readouterr()
    assert "a.png" in told.err and ".svg" in told.err and told.out == "" and not list(folder.iterdir())


def test_a_plot_escapes_names_and_takes_any_points() -> None:
    """Names are text, never markup; no points, one point, and coinciding points are drawn too."""
    for points in ([], [Point(Fraction(0), Fraction(0), "a<b>&\"'")], [Point(Fraction(1, 3), Fraction(5), "x")] * 3):
        root = ElementTree.fromstring(plot(points, x="<x>", y="&", title='"t"', frontier=True))
        assert root.tag == f"{SVG}svg"


@pytest.mark.parametrize("seed", range(8))
def test_a_crowd_has_all_its_names(seed: int) -> None:
    """Thirty schedules of one size each have their name once, clear of marks, names and lines, and share a label at one
    place; omitted ones are named below the axes, no line wider than the picture.
    """
    rng = random.Random(seed)
    names = [f"schedule_{i}" for i in range(30)]
    points = [Point(Fraction(rng.choice((4, 5, 8, 8, 9, 16))), Fraction(rng.randint(5, 30)), name) for name in names]
    root = ElementTree.fromstring(plot(points, x="x", y="y", frontier=True, notes=["left out: " + "word " * 60]))
    texts = [x for x in root.iter(f"{SVG}text") if x.get("class") == "label"]
    low = next(float(x.attrib["y"]) + float(x.attrib["height"]) for x in root.iter(f"{SVG}rect") if "x" in x.attrib)
    inside, below = [[x for x in texts if (float(x.attrib["y"]) > low) == side] for side in (False, True)]
    assert sorted(name for x in inside for name in str(x.text).split(", ")) == sorted(names)
    assert len(below) > 1 and all(64 + 6 * len(str(x.text)) <= 720 for x in below)
    assert max(float(x.attrib["y"]) for x in below) < float(root.attrib["height"])
    spots = {tuple(map(float, g.attrib["transform"][10:-1].split())) for g in root.iter(f"{SVG}g")}
    marks = [(x - 6, y - 6, x + 6, y + 6) for x, y in spots]
    boxes = [(x, y - 9, x + 6 * len(str(e.text)), y + 2) for e in inside for x, y in [_at(e, "x", "y")]]
    for i, a in enumerate(boxes):
        assert not any(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3] for b in (*boxes[:i], *marks))
    for line in (x for x in root.iter(f"{SVG}line") if x.get("class") == "lead"):
        (x1, y1), (x2, y2) = _at(line, "x1", "y1"), _at(line, "x2", "y2")
        way = [(x1 + (x2 - x1) * i / 200, y1 + (y2 - y1) * i / 200) for i in range(201)]
        for left, top, right, bottom in boxes:
            assert not any(left + 0.1 < x < right - 0.1 and top + 0.1 < y < bottom - 0.1 for x, y in way)


def _at(element: ElementTree.Element, x: str, y: str) -> tuple[float, float]:
    return float(element.attrib[x]), float(element.attrib[y])


@pytest.mark.parametrize(
    ("line", "program", "why"),
    [
        ("frozen 0", "repeat m { F } repeat m { B }", "frozen stages: 0 (their weights are not trained)"),
        ("", "repeat m { F }", "forward-only: it does not train"),
        ("costs F = 2", "repeat m { F } repeat m { B }", "with the costs in its file"),
        ("require m > 9", "repeat m { F } repeat m { B }", "requires m > 9"),
    ],
)
def test_what_cannot_be_compared_is_said_beside_the_plot(line: str, program: str, why: str) -> None:
    """The schedule has no mark; its name and the reason are below the axes."""
    text = f"schedule less(p, m)\nstage s in 0 .. p on rank s\n{line}\nrank r {{ {program} }}\n"
    made = pipesched.compare(pipesched.Source("less.ps", text), "1f1b", p=2, m=4)
    assert [point.series for point in made.points()] == ["1f1b"]
    assert re.search(rf">not drawn: less: [^<]*{re.escape(why.replace('>', '&gt;'))}", made.plot())
