"""In the picture of a slot each part runs once, no engine runs two parts at a time, and the drawn path has no gap."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import pipesched
from pipesched import PipeschedError
from pipesched.__main__ import main
from pipesched.support.source import Source
from tests.readers.browser import Page

FILE = """schedule joined(p = 1, m = 3)
stage s in 0 .. p on rank s
parts F = 2 of (attn 4, dispatch 6 on comm, mlp 5)
parts I = 2 of (mlp 7, dispatch 6 on comm, attn 8)
parts W = 2 of (mlp 3, attn 2)
rank r { F  overlap(F, I)  overlap(F, W)  I  overlap(I, W)  W }
"""
JOINED = Source("joined.ps", FILE)


@pytest.mark.parametrize(
    ("target", "slot", "letters"),
    [
        (JOINED, "I0.0", "FI"),
        (JOINED, "W0.0", "FW"),
        (JOINED, "I0.2", "IW"),
        (JOINED, "W0.2", "W"),
        ("dualpipe", "F0.3", "FIW"),
    ],
)
def test_parts_run_as_engines_do(target: Source | str, slot: str, letters: str) -> None:
    """All parts of the slot's letters; none overlaps another on its engine; the last ends with the slot."""
    sizes = {} if isinstance(target, Source) else {"p": 4, "m": 8, "parts": "deepseek-v3"}
    value = pipesched.show(target, slot=slot, **sizes).to_json()  # type: ignore[arg-type]
    made = value["slot"]
    assert isinstance(made, dict)
    parts, time = made["parts"], Fraction(made["time"])
    runs = [(x["engine"], Fraction(x["begin"]), Fraction(x["end"])) for x in parts]
    assert {x["letter"] for x in parts} == set(letters) and max(end for _, _, end in runs) == time
    for at, (engine, begin, end) in enumerate(runs):
        assert all(end <= b or e <= begin for on, b, e in runs[:at] if on == engine)
    path = sorted((Fraction(x["begin"]), Fraction(x["end"])) for x in parts if x["critical"])
    assert path[0][0] == 0 and path[-1][1] == time
    assert all(one[1] == other[0] for one, other in pairwise(path))
    assert sum(end - begin for begin, end in path) == time


def test_the_figure_names_its_parts() -> None:
    """One rectangle per part with its name as a tooltip, a lane per engine, the same bytes each time."""
    drawn = str(pipesched.show(JOINED, "svg", slot="I0.0"))
    titles = [x.text for x in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}title")]
    names = ("F.attn", "F.dispatch", "F.mlp", "I.mlp", "I.dispatch", "I.attn")
    assert sorted(map(str, titles)) == sorted(f"{name} {layer}" for name in names for layer in (0, 1))
    assert drawn == str(pipesched.show(JOINED, "svg", slot="I0.0")) and ">comm<" in drawn


def exposed(parts: Iterable[tuple[int, float, float]], length: float) -> float:
    """Return the time when no part runs in lane 0, counted from edge to edge."""
    edges = sorted({0.0, length, *(t for _, begin, end in parts for t in (begin, end))})
    own = [(begin, end) for lane, begin, end in parts if lane == 0]
    return sum(b - a for a, b in pairwise(edges) if not any(begin <= a and b <= end for begin, end in own))


COLOURED = """(() => {
  const paper = document.querySelector("canvas"), all = paper.getContext("2d");
  const { data } = all.getImageData(0, 0, paper.width, paper.height);
  let seen = 0;
  for (let i = 0; i < data.length; i += 4) seen += data[i] === 0x9a && data[i + 1] === 0x6a && data[i + 2] === 0;
  return seen;
})()"""


@pytest.mark.parametrize("name", ["dualpipe", "zb_v"])
def test_a_chosen_operation_opens_its_slot(name: str, tab: Page, tmp_path: Path) -> None:
    """In the page: a rectangle for each part as in `show --slot`, a lane per engine, and the exposed times."""
    path = tmp_path / "page.html"
    path.write_text(str(pipesched.show(name, "html", p=4, m=8, parts="deepseek-v3")), "utf-8")
    tab.complaints.clear()
    tab.size(1280, 720)
    tab.open(path)
    tab.settle()
    assert tab.evaluate("document.getElementById('slot')") is None
    assert "exposed" in tab.evaluate("document.getElementById('legend').textContent")
    assert tab.evaluate(COLOURED) > 0
    for index in range(0, 40, 7):
        x, y = tab.evaluate(f"pipesched.middle({index})")
        tab.mouse("mousePressed", x, y, button="left", clickCount=1)
        tab.mouse("mouseReleased", x, y, button="left", clickCount=1)
        tab.settle()
        chosen = tab.evaluate("pipesched.marked.chosen")
        label = tab.evaluate(f"pipesched.labelOf({chosen})")
        made: Any = pipesched.show(name, slot=label, p=4, m=8, parts="deepseek-v3").to_json()["slot"]
        lanes = tab.evaluate("[...document.querySelectorAll('#slot .lane')].map((x) => x.textContent)")
        assert lanes == [*sorted({"compute", *(x["engine"] for x in made["parts"])}, key="compute".__ne__), "exposed"]
        drawn = tab.evaluate(
            "[...document.querySelectorAll('#slot rect')].map((x) => [x.querySelector('title')?.textContent ?? '', "
            "+x.getAttribute('x'), +x.getAttribute('width'), x.getAttribute('class')])"
        )
        parts = [x for x in drawn if x[0]]
        assert len(parts) == len(made["parts"]) and made["name"] in tab.evaluate(
            "document.getElementById('slot').textContent"
        )
        whole = max(x[1] + x[2] for x in parts) - min(x[1] for x in parts)
        wide = {
            f"{x['letter']}.{x['part']} {x['layer']}": Fraction(x["end"]) - Fraction(x["begin"]) for x in made["parts"]
        }
        for title, _, width, _ in parts:
            assert width / whole == pytest.approx(float(wide[title.partition(":")[0]] / Fraction(made["time"])))
        assert sum(x[3] == "leading" for x in parts) == sum(x["critical"] for x in made["parts"])
        runs = [
            (int(x["engine"] != "compute"), float(Fraction(x["begin"])), float(Fraction(x["end"])))
            for x in made["parts"]
        ]
        left = exposed(runs, float(Fraction(made["time"])))
        assert sum(x[2] for x in drawn if not x[0]) / whole == pytest.approx(left / float(Fraction(made["time"])))
    assert tab.complaints == []


STRIP = "#9a6a00"


@pytest.mark.parametrize("more", [[], ["--cost=FB=129"]], ids=["derived", "measured"])
@pytest.mark.parametrize("style", ["default", "megatron"])
def test_strips_of_a_figure_are_the_exposed_time(more: list[str], style: str, tmp_path: Path) -> None:
    """Their widths on a rank are its exposed time, also where --cost replaces the time of a pair."""
    arguments = ["dualpipe", "--p=4", "--m=8", "--parts=deepseek-v3", *more]
    file, told = tmp_path / "figure.svg", tmp_path / "told.json"
    assert main(["show", *arguments, f"--style={style}", "-o", str(file)]) == 0
    assert main(["verify", *arguments, "--json", "-o", str(told)]) == 0
    value = json.loads(told.read_text())
    drawn = [*ElementTree.parse(file).getroot().iter("{http://www.w3.org/2000/svg}rect")]
    strips = [x for x in drawn if x.get("fill") == STRIP]
    slots = [x for x in drawn if re.fullmatch(r"[FIWB]\d s", x.get("class", "")) and x.get("width") != "16"]
    edges = [(float(x.get("x", 0)), float(x.get("x", 0)) + float(x.get("width", 0))) for x in slots]
    pixels = (max(b for _, b in edges) - min(a for a, _ in edges)) / float(Fraction(value["time"]["makespan"]))
    rows = sorted({x.get("y", "") for x in strips}, key=float)
    wide = [sum(float(x.get("width", 0)) for x in strips if x.get("y") == row) / pixels for row in rows]
    assert wide == pytest.approx([float(Fraction(x)) for x in value["exposed"]["exposed"]], rel=1e-3)
    assert ">exposed</text>" in file.read_text()


def test_strips_of_a_text() -> None:
    """The signs are those columns of a slot in which no part runs on the rank's own engine, behind the label."""
    drawn = str(pipesched.show(JOINED, width=200)).splitlines()
    (row,) = (line for line in drawn if line.startswith("rank 0") and "F0" in line)
    columns, units = re.findall(r"(\d+) columns? = ([\d.]+) unit", drawn[1])[0]
    step = Fraction(units) / int(columns)
    slot: Any = pipesched.show(JOINED, slot="F0.0").to_json()["slot"]
    own = [(Fraction(x["begin"]), Fraction(x["end"])) for x in slot["parts"] if x["engine"] == "compute"]
    width, left = int(Fraction(slot["time"]) / step), len("rank 0 ")
    for k, sign in enumerate(row[left : left + width]):
        at = (k + Fraction(1, 2)) * step
        assert k < len("F0") or sign == (" " if any(begin <= at < end for begin, end in own) else "-"), (k, row)
    assert "-" in row[left : left + width] and any("- exposed" in line for line in drawn[-3:])


@pytest.mark.parametrize("form", ["text", "svg"])
def test_charts_without_parts_have_no_strips(form: str) -> None:
    """Neither the sign or colour, nor the entry of the legend."""
    drawn = str(pipesched.show("dualpipe", form, p=4, m=8))
    assert "exposed" not in drawn and STRIP not in drawn


def test_a_page_without_parts_has_no_slots() -> None:
    """Neither the column nor the list."""
    assert "column-slots" not in str(pipesched.show("zb_v", "html", p=4, m=8))


@pytest.mark.parametrize(
    ("target", "slot", "said"),
    [
        (JOINED, "F0.9", "the schedule does not contain the operation 'F0.9'"),
        (JOINED, "F", "the schedule does not contain the operation 'F'"),
        (Source("bare.ps", FILE.replace("parts", "# parts")), "F0.0", "no parts are given"),
    ],
)
def test_what_is_not_there_is_refused(target: Source, slot: str, said: str) -> None:
    """An unknown operation, and a schedule without parts."""
    with pytest.raises(PipeschedError, match=said) as caught:
        pipesched.show(target, slot=slot)
    assert [str(x.code) for x in caught.value.diagnostics] == ["PS225"]
