"""Figures look right on any background, as PDF and PNG, and on a phone."""

from __future__ import annotations

import importlib.util
import re
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.model.costs import Costs
from pipesched.model.ops import COMPUTES
from pipesched.runtime.measured import against as laid_over
from pipesched.runtime.measured.deviation import against
from pipesched.runtime.measured.measured_run import Measured
from pipesched.views import plot, svg
from pipesched.views.chart.chart import chart
from pipesched.views.palette import STYLES, shade
from tests.core.test_standstill import of_fixture
from tests.readers.browser import Page
from tests.readers.drawings import NS
from tests.readers.pages import Opened, place
from tests.views.test_svg_styles import luminance

needs_cairo = pytest.mark.skipif(importlib.util.find_spec("cairosvg") is None, reason="cairosvg is not installed")
PDF, PNG = b"%PDF-", b"\x89PNG\r\n\x1a\n"


def stopped() -> str:
    program, _ = of_fixture()
    return svg.render(chart(program.schedule))


def measured() -> str:
    """Return a plan and its run, one above the other."""
    import numpy as np

    plan = chart(pipesched.load("1f1b", p=2, m=3))
    times = np.stack([plan.times.start, plan.times.end])[:, None, :] * 1000
    run = against(plan.schedule, plan.times, plan.analysis.costs.ticks(2), Measured(plan.schedule, *times, None))
    return laid_over.figure(plan, run)


FIGURES = {
    "default": lambda: svg.render(chart(pipesched.load("zb_h1", p=4, m=8)), svg.Svg(memory=True, messages=True)),
    "zero-bubble": lambda: svg.render(chart(pipesched.load("zb_h1", p=4, m=8)), svg.Svg(style="zero-bubble")),
    "megatron": lambda: svg.render(chart(pipesched.load("interleaved", p=2, v=2, m=4)), svg.Svg(style="megatron")),
    "stopped": stopped,
    "measured": measured,
    "note": lambda: svg.note("too large"),
    "plot": lambda: plot.plot([plot.Point(Fraction(1), Fraction(2), "one")], x="memory", y="bubble"),
}
SEEN = """(() => {
  const ground = [...document.querySelectorAll('path.z, rect.z, rect.pipesched, rect.back')][0];
  const box = ground.getBoundingClientRect(), words = [...document.querySelectorAll('text')];
  const own = words.filter((x) => !/^c /.test(x.getAttribute('class') || ''));  // not on a slot, which has its own ink
  return [getComputedStyle(ground).fill, [...new Set(own.map((x) => getComputedStyle(x).fill))],
    box.left <= 0 && box.top <= 0 && box.right >= document.documentElement.width.baseVal.value &&
    box.bottom >= document.documentElement.height.baseVal.value];
})()"""


def brightness(colour: str) -> float:
    return luminance("#" + "".join(f"{int(x):02x}" for x in re.findall(r"\d+", colour)[:3]))


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_figure_stands_on_a_ground_of_its_own(name: str, scheme: str, tab: Page, tmp_path: Path) -> None:
    """Opened alone in a browser with a light or dark theme, the figure paints the background of all its words, and
    every word has a contrast of at least 4.5 to 1 with it (WCAG 2.2, 1.4.3).
    """
    file = tmp_path / "figure.svg"
    file.write_text(FIGURES[name](), "utf-8")
    tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    tab.open(file)
    ground, inks, covered = tab.evaluate(SEEN)
    tab.call("Emulation.setEmulatedMedia", features=[])
    assert covered and (brightness(ground) > 0.8) == (scheme == "light")
    for ink in inks:
        low, high = sorted((brightness(ground), brightness(ink)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (ground, ink)


@pytest.mark.parametrize("chunks", [2, 3, 4, 8])
def test_chunks_have_shades_of_their_own(chunks: int) -> None:
    """Every chunk of a kind has a fill of its own, and with more than two the label has the stage."""
    root = ElementTree.fromstring(svg.render(chart(pipesched.load("interleaved", p=2, v=chunks, m=2))))
    look = STYLES["default"]
    sheet = root.find(f"{NS}style").text or ""  # type: ignore[union-attr]
    for op in COMPUTES:
        shades = {shade(look.colour(op), c, chunks, look.lighten) for c in range(chunks)}
        assert len(shades) == chunks and (op.name not in "FB" or all(f"fill:{x}" in sheet for x in shades))
    labels = [x.text or "" for x in root.iter(f"{NS}text") if x.attrib.get("class", "").startswith("c ")]
    assert all(("." in label) == (chunks > 2) for label in labels)


@needs_cairo
@pytest.mark.parametrize(("suffix", "magic"), [("pdf", PDF), ("png", PNG)])
@pytest.mark.parametrize(
    "options",
    [["--memory", "--messages"], *(pytest.param(x, marks=pytest.mark.nightly) for x in ([], ["--style", "megatron"]))],
)
def test_a_figure_is_written_as_pdf_and_png(suffix: str, magic: bytes, options: list[str], folder: Path) -> None:
    """The suffix decides; the bytes are the same each time, and a PNG has twice the figure's pixels."""
    made = []
    for name in ("one", "two"):
        assert main(["show", "zb_h1", "--p", "4", "--m", "8", *options, "-o", f"{name}.{suffix}"]) == 0
        made.append((folder / f"{name}.{suffix}").read_bytes())
    assert made[0] == made[1] and made[0].startswith(magic)
    if suffix == "png":
        assert main(["show", "zb_h1", "--p", "4", "--m", "8", *options, "-o", "one.svg"]) == 0
        width, height = svg.size((folder / "one.svg").read_text("utf-8"))
        assert struct.unpack(">II", made[0][16:24]) == (2 * width, 2 * height)


class _Broken:
    """The finder of a cairosvg whose import fails as without the library cairo."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "cairosvg":
            raise OSError('no library called "cairo-2" was found')


@contextmanager
def without_cairosvg() -> Iterator[None]:
    kept, sys.modules["cairosvg"] = sys.modules.pop("cairosvg", None), None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["cairosvg"]
        sys.modules.update({} if kept is None else {"cairosvg": kept})


@contextmanager
def without_cairo() -> Iterator[None]:
    kept, finder = sys.modules.pop("cairosvg", None), _Broken()
    sys.meta_path.insert(0, finder)  # type: ignore[arg-type]
    try:
        yield
    finally:
        sys.meta_path.remove(finder)  # type: ignore[arg-type]
        sys.modules.update({} if kept is None else {"cairosvg": kept})


@pytest.mark.parametrize(
    ("missing", "help"),
    [(without_cairosvg, "pip install 'pipesched[views]'"), (without_cairo, "apt-get install libcairo2")],
)
@pytest.mark.parametrize("suffix", ["pdf", "png"])
def test_what_to_install_is_told(
    suffix: str, missing: type, help: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without cairosvg, or without its library, the command reports PS820 with status 2 and the command that installs
    it, and writes no file."""
    with missing():
        assert main(["show", "1f1b", "--p", "2", "-o", f"figure.{suffix}"]) == 2
    told = capsys.readouterr().err
    assert "PS820" in told and help in told and f"a {suffix.upper()} needs cairosvg" in told
    assert not list(folder.iterdir())


def test_a_search_that_finds_nothing_says_so(opened: Opened) -> None:
    """Missing operations, invalid names, and operations that never run are explained below the picture."""
    program, _ = of_fixture()
    page = opened(chart(program.schedule))

    def searched(text: str) -> str:
        page.evaluate(
            f"(() => {{ const box = document.getElementById('find'); box.value = '{text}';"
            "box.dispatchEvent(new Event('change')); })()"
        )
        return str(page.evaluate("document.getElementById('detail').textContent"))

    assert searched("F9.9").startswith("there is no F9.9 here")
    assert "operations are F, B of stages 0 to 1, microbatches 0 to 2" in searched("7")
    assert searched("forward").startswith("forward is not the name of an operation")
    assert searched("B1.2").startswith("B1.2 never runs")
    assert searched("B1.1").startswith("B1.1") and page.evaluate("pipesched.marked.chosen") >= 0
    assert "hover" in searched("") or "B1.1" in searched("")


@pytest.fixture
def phone(tab: Page) -> Iterator[Page]:
    """Return a narrow window without a pointer."""
    tab.call("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=2)
    media = [{"name": "hover", "value": "none"}, {"name": "pointer", "value": "coarse"}]
    tab.call("Emulation.setEmulatedMedia", features=media)
    yield tab
    tab.call("Emulation.setEmulatedMedia", features=[])
    tab.call("Emulation.setTouchEmulationEnabled", enabled=False)


@pytest.mark.parametrize("name", ["1f1b", "dualpipe"])
def test_a_phone_is_told_to_tap(name: str, phone: Page, opened: Opened) -> None:
    """No mention of hovering or keys, and everything that a tap shows is visible."""
    page = opened(chart(pipesched.load(name, p=4, m=8), Costs.parse("F=10,B=7/3")))
    page.size(390, 800)
    page.settle()
    words = "document.getElementById('detail').textContent + document.getElementById('keys').textContent"
    told = page.evaluate(words)
    assert "tap" in told and not re.search(r"hover|click|wheel|shift|escape", told)
    for index in (0, 5, 11):
        x, y = place(page, index)
        finger = [{"x": x, "y": y, "id": 0}]
        page.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=finger)
        page.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        page.settle()
        assert page.evaluate("pipesched.marked.chosen") >= 0
        hidden = "(({ scrollHeight, clientHeight }) => scrollHeight - clientHeight)(document.getElementById('detail'))"
        assert page.evaluate(hidden) <= 0
        assert page.evaluate("document.getElementById('detail').getBoundingClientRect().bottom") <= 800
        assert page.evaluate("document.getElementById('stage').clientHeight") > 150


def test_boxes_of_a_page_are_named_alike(opened: Opened) -> None:
    """Forwards of 1 and backwards of 6 have full names if the forwards have room, else only numbers."""
    page = opened(chart(pipesched.load("1f1b", p=2, m=8), Costs.parse("F=1,B=6")))
    assert page.evaluate("pipesched.name(0)") == "0"
    for _ in range(4):
        page.key("+")
    assert page.evaluate("pipesched.name(0)") == "F0.0"
