"""The words around a chart of characters: what it is and costs, at which scale, what stopped, what the letters mean."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from textwrap import wrap

import numpy as np

from pipesched.model.numbers import shown
from pipesched.model.ops import Op
from pipesched.render import clean, sizes
from pipesched.views import standing, verdict
from pipesched.views.cells import KINDS
from pipesched.views.palette import alarm, paint, terminal
from pipesched.views.standing import SHOWN
from pipesched.views.text_layout import Layout

_WORDS = {
    "F": "forward",
    "I": "backward, input",
    "W": "backward, weights",
    "B": "full backward",
    "+": "overlap, one slot",
}


def title(layout: Layout) -> Iterator[str]:
    """Name, sizes and cost; then the scale, and the part of time if it is one."""
    chart, at = layout.chart, layout.axis
    about = clean(chart.title), sizes(chart.sizes), f" {verdict.cost(chart)}"
    yield from wrapped(layout, "  ".join(part for part in about if part))
    part = ""
    if (at.begin, at.end) != (0, max(chart.times.makespan, 1)):
        part = f"time {shown(chart.time(at.begin))} to {shown(chart.time(at.end))} of {shown(chart.makespan)}; "
    columns = max(at.unit, 1)
    unit = columns * at.step / chart.scale
    scale = f"{columns} column{'s' * (columns > 1)} = {shown(unit)} unit{'s' * (unit > 1)} of time"
    yield from wrapped(layout, part + scale)


def stopped(layout: Layout) -> Iterator[str]:
    """What each rank waits for in the end: those of the cycle one by one, with their mark, then the others."""
    stop = layout.chart.stop
    if stop is None:
        return
    lines = [(f"{layout.cross} {standing.link(x)}", True) for x in stop.cycle]
    rest = [(f"{layout.wait} {standing.stand(x)}", False) for x in standing.others(stop)]
    for line, red in [*lines[:SHOWN], *rest[:SHOWN]]:
        first, *more = wrap(line, layout.how.width, break_on_hyphens=False, subsequent_indent="  ")
        yield alarm(first[0]) + first[1:] if red and layout.how.color else first
        yield from more
    for left, what in ((len(lines) - SHOWN, "waits of the cycle"), (len(rest) - SHOWN, "ranks stop")):
        if left > 0:
            yield f"and {left} more {what}"


def legend(layout: Layout) -> Iterator[str]:
    """The letters that occur, and what else cannot be guessed."""
    seen = set(np.unique(layout.kinds).tolist())
    texts = [f"{letter} {_WORDS[letter]}" for i, letter in enumerate(KINDS) if i in seen]
    for line in _filled(layout, [*texts, f"{layout.dot} idle"]):
        yield "   ".join(_painted(layout, text) for text in line)
    yield from wrapped(layout, _letters(layout))
    unseen = verdict.timeless(layout.chart)
    if unseen:
        yield from wrapped(layout, f"{unseen} operation{'s' * (unseen > 1)} of no duration cannot be seen")
    if layout.phased:
        yield from wrapped(layout, "phases: warm-up until a rank's first backward, cool-down after its last forward")


def _letters(layout: Layout) -> str:
    lower = "; odd chunks of a rank in lower case" if layout.chunks > 1 else ""
    paler = ", later ones paler" if lower and layout.how.color else ""
    if layout.mixed:
        chunks = lower + paler if layout.chunked else ""
        return f"a column shows one of the kinds in it, each as often as its share of the time{chunks}"
    if layout.labels.stages:
        return f"F9.5 is stage 9, microbatch 5{lower}{paler}"
    named = f", stages named at --width {layout.naming}" if layout.chunks > 2 else ""
    return f"the number is the microbatch{lower}{paler}{named}"


def wrapped(layout: Layout, text: str) -> list[str]:
    """As many lines as that takes; no line but a row of the chart begins with a rank."""
    whole = re.sub(r"(?<=\d) (?=%)", "\0", re.sub(r"on rank (?=\d)", "on\0rank\0", text))
    return [line.replace("\0", " ") for line in wrap(whole, layout.how.width, break_on_hyphens=False)]


def _filled(layout: Layout, texts: Sequence[str]) -> Iterator[list[str]]:
    """Texts by line, three blanks apart."""
    line: list[str] = []
    for text in texts:
        if line and len("   ".join([*line, text])) > layout.how.width:
            yield line
            line = []
        line.append(text)
    yield line


def _painted(layout: Layout, text: str) -> str:
    """The letter in its colour; an overlap has those of its parts."""
    letter = text[0]
    if not layout.how.color or letter not in Op.__members__:
        return text
    return paint(letter, terminal(Op[letter], 0, 1)) + text[1:]
