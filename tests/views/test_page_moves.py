"""The page, in a real headless Chromium, follows wheel, pointer, fingers and keys, even with half a million
operations."""

from __future__ import annotations

from pathlib import Path

import pytest

import pipesched
from pipesched.model.costs import Costs
from pipesched.views.chart.chart import chart
from tests.readers.pages import ALL_SIX, Opened, colours, label, place, tip

LARGE = {"p": 64, "v": 4, "m": 1024}
WORK, IDLE = 4 * 1024 * 3, 63 * 3  # v m (tF + tB), and (p - 1)(tF + tB), arXiv:2104.04473 section 2.2


def test_the_wheel_zooms_about_the_pointer(opened: Opened) -> None:
    """The time under the pointer stays in place, with more detail; 0 returns to the whole."""
    page = opened(chart(pipesched.load("zb_h1", p=4, m=8)))
    whole = page.evaluate("[pipesched.view.left, pipesched.view.perPixel]")
    under = "pipesched.under(700, 60).time"
    before = page.evaluate(under)
    top = page.evaluate("document.getElementById('stage').getBoundingClientRect().top")
    page.wheel(700, top + 60, -300)
    assert page.evaluate(under) == pytest.approx(before)
    assert page.evaluate("pipesched.view.perPixel") < whole[1]
    page.key("0")
    assert page.evaluate("[pipesched.view.left, pipesched.view.perPixel]") == whole


def test_keys_drags_and_fingers_move_and_zoom(opened: Opened) -> None:
    """The keys + and - undo each other; a drag moves the picture; two fingers moving apart zoom in."""
    page = opened(chart(pipesched.load("interleaved", **ALL_SIX["interleaved"])))
    wide = page.evaluate("pipesched.view.perPixel")
    page.key("+")
    near = page.evaluate("pipesched.view.perPixel")
    page.key("-")
    assert near < wide == pytest.approx(page.evaluate("pipesched.view.perPixel"))
    for _ in range(4):
        page.key("+")
    before = page.evaluate("pipesched.xOf(0)")
    page.mouse("mousePressed", 600, 200, button="left", clickCount=1)
    page.mouse("mouseMoved", 550, 200, button="left", buttons=1)
    page.mouse("mouseReleased", 550, 200, button="left", clickCount=1)
    page.settle()
    assert page.evaluate("pipesched.xOf(0)") == pytest.approx(before - 50)
    assert page.evaluate("pipesched.marked.chosen") == -1  # a drag is not a click
    page.call("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=2)
    near = page.evaluate("pipesched.view.perPixel")
    for apart in (100, 120, 150, 200):
        fingers = [{"x": 600 - apart / 2, "y": 200, "id": 0}, {"x": 600 + apart / 2, "y": 200, "id": 1}]
        page.call("Input.dispatchTouchEvent", type="touchStart" if apart == 100 else "touchMove", touchPoints=fingers)
    page.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    page.call("Emulation.setTouchEmulationEnabled", enabled=False)
    page.settle()
    assert page.evaluate("pipesched.view.perPixel") == pytest.approx(near / 2, rel=0.15)


def test_messages_are_drawn_on_demand(opened: Opened) -> None:
    """a draws an arrow for each message in sight."""
    button = "document.getElementById('messages').textContent"
    drawn = chart(pipesched.load("gpipe", p=2, m=2), Costs.parse("C=2"))
    page = opened(drawn)
    (x0, y0), (x1, y1) = place(page, 0), place(page, 4)  # F0.0 on rank 0, F1.0 on rank 1; the arrow is between them
    line = [(x0 + (x1 - x0) * k / 200, y0 + (y1 - y0) * k / 200) for k in range(201)]
    before = colours(page, line)
    page.key("a")
    assert page.evaluate(button) == "messages" and colours(page, line) != before
    page.key("a")
    assert colours(page, line) == before


def test_light_and_dark(opened: Opened) -> None:
    """The page follows the system theme, and d toggles it."""
    page = opened(chart(pipesched.load("gpipe", p=2, m=2)))
    scheme = {"name": "prefers-color-scheme", "value": "dark"}
    page.call("Emulation.setEmulatedMedia", features=[scheme])
    page.settle()
    corner = [(5.0, 400.0)]
    assert max(colours(page, corner)[0]) < 60
    page.key("d")
    assert min(colours(page, corner)[0]) > 240
    page.call("Emulation.setEmulatedMedia", features=[])


def test_half_a_million_operations(opened: Opened, tmp_path: Path) -> None:
    """The page takes less than 40 MB. Operations are found, pointed at and clicked as on a page of eight; the critical
    path is as long as the formula says; of messages it says that they are too many; frames are quick. In the steady
    phase a third of a rank's time is forward and the rest backward: so is the area of its bar.
    """
    large = chart(pipesched.load("interleaved", **LARGE))
    page, schedule = opened(large), large.schedule
    assert len(schedule) == 64 * 4 * 1024 * 2 and (tmp_path / "page.html").stat().st_size < 40e6
    ends = "pipesched.criticalPath.reduce((t, i) => Math.max(t, pipesched.columns.end[i]), 0)"
    assert page.evaluate(ends) == WORK + IDLE
    for index in range(1000, len(schedule), 180_000):
        page.evaluate(f"pipesched.goTo({index})")
        page.settle()
        page.mouse("mouseMoved", *place(page, index))
        assert tip(page)[0].split()[0] == label(schedule[index])
    page.key("0")
    page.key("a")
    assert page.evaluate("document.getElementById('messages').textContent") == "messages: zoom in"
    page.key("a")
    page.click(640, 300)
    assert page.evaluate("pipesched.marked.operations.length") == 2 * 4 * 64
    drawn, between = (sorted(x) for x in page.evaluate(_MOVING))
    print(f"p=64 v=4 m=1024: a frame drawn in {drawn[6]:.1f} ms, every {between[6]:.1f} ms")
    assert between[6] < 500  # only that it is not a slide show, on a loaded machine too
    page.key("Escape")
    page.key("0")
    for _ in range(16):
        page.key("}")
    rank = page.evaluate("pipesched.rankAt(200)")
    top, height = page.evaluate(f"[pipesched.yOf({rank}), pipesched.barHeight()]")
    above = page.evaluate("document.getElementById('stage').getBoundingClientRect().top")
    points = [(float(x), above + top + 2 + k) for x in range(600, 690, 3) for k in range(int(height) - 4)]
    bluish = [blue > red for red, _, blue in colours(page, points)]
    assert sum(bluish) / len(bluish) == pytest.approx(1 / 3, abs=0.02)


_MOVING = """(async () => {
  const next = () => new Promise((done) => requestAnimationFrame(done)), between = [];
  let before = await next();
  for (let k = 0; k < 12; k++) {
    const deltaY = k % 4 < 2 ? 40 : k < 8 ? -60 : 60, shiftKey = k % 4 < 2;
    document.getElementById("stage").dispatchEvent(new WheelEvent("wheel",
      { deltaY, shiftKey, clientX: 640, clientY: 300, bubbles: true, cancelable: true }));
    const now = await next();
    between.push(now - before);
    before = now;
  }
  return [pipesched.frames.slice(-12), between];
})()"""
