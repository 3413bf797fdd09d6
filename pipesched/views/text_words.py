"""The words around a chart of characters: what it is and costs, at which scale, what stopped, what the letters mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

import numpy as np

from pipesched.model.numbers import shown
from pipesched.model.ops import Op
from pipesched.render import clean, sizes
from pipesched.views import verdict
from pipesched.views.cells import KINDS
from pipesched.views.palette import TERMINAL, paint
from pipesched.views.text_layout import Layout
from pipesched.views.text_rows import NEARLY

_SHOWN = 8  # ranks that stop, named one by one
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
    """What never runs."""
    schedule = layout.chart.schedule
    stuck = [(rank, i) for rank, i in enumerate(layout.chart.times.stuck) if i >= 0]
    for rank, i in stuck[:_SHOWN]:
        yield from wrapped(layout, f"rank {rank} stops before {schedule[i]} (step {schedule.step(i)})")
    if len(stuck) > _SHOWN:
        yield f"and {len(stuck) - _SHOWN} more ranks stop"


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
    if layout.mixed:
        return f"a column shows what takes most of it; in lower case less than {NEARLY * 100} %"
    if layout.labels.stages:
        return "F9.5 is stage 9, microbatch 5; odd chunks of a rank in lower case"
    words = "the number is the microbatch"
    if layout.chunks > 1:
        words += "; odd chunks of a rank in lower case"
    return words + (f", stages named at --width {layout.naming}" if layout.chunks > 2 else "")


def wrapped(layout: Layout, text: str) -> list[str]:
    """As many lines as that takes."""
    return wrap(text, layout.how.width, break_on_hyphens=False)


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
    return paint(letter, TERMINAL[Op[letter]][0]) + text[1:]
