"""Draws a chart in characters: a row for each rank, with time from left to right.

             0    5    10   15                           the time
    rank 0   F0F1F2F3· · · B0  F4B1  ...                 a slot, its idle time as dots
    rank 1     ...

    out    ...                                      the copies out and in, if activations are offloaded

             0 to 4 activations, | between phases   peak
    rank 0   ▂▄▆▇▇▇▇▇|▇▇▇▇▇▆|▄▂                        4  memory of the rank

If everything fits, the number of columns of a slot is proportional to its time. Otherwise a column with several slots
shows one of their kinds, and each kind, like idle time, gets columns in proportion to its share of the rank's time
(`columns`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from textwrap import wrap

import numpy as np

from pipesched.analysis.standstill import NAMED
from pipesched.diagnostics import Code, fail
from pipesched.model.numbers import shown
from pipesched.model.ops import COMPUTES, Op
from pipesched.views.chart import caption
from pipesched.views.chart.axis import ruler
from pipesched.views.chart.chart import Chart
from pipesched.views.chart.colours import MIXED, STRIP, alarm, paint, terminal
from pipesched.views.chart.columns import IDLE, shares, spans
from pipesched.views.chart.slots import KINDS, highest
from pipesched.views.chart.text_layout import Bars, Layout, Text

_LEAST = 24  # fewest columns of a useful picture

__all__ = ["Text", "render"]


def render(chart: Chart, how: Text | None = None) -> str:
    """Render the chart as lines of at most `width` characters, each ending in a newline.

    Raises:
        PipeschedError: PS225: the width is below 24 columns, or the viewport is empty.
    """
    how = how or Text()
    if how.width < _LEAST:
        raise fail(Code.USAGE, f"{how.width} columns are too few for a chart", help=f"give at least {_LEAST}")
    return "".join(line.rstrip() + "\n" for line in _lines(Layout(chart, how)))


def _lines(layout: Layout) -> Iterator[str]:
    yield from title(layout)
    yield ""
    yield " " * layout.left + ruler(layout.axis, layout.chart)
    for rank in range(layout.chart.schedule.ranks):
        yield layout.name(rank) + row(layout, rank)
        if layout.copies:
            for engine, name in enumerate(("out", "in")):
                made = drawn(layout, layout.copies, 2 * rank + engine, mixed=layout.finer(layout.copies))
                yield f"{name} ".rjust(layout.left) + "".join(text for text, _ in made)
    yield from stopped(layout)
    yield ""
    yield from memory(layout)
    yield ""
    yield from legend(layout)


def row(layout: Layout, rank: int) -> str:
    """Return the characters of a rank, from the first column to the last, with a mark where it stops for good."""
    made = drawn(layout, layout.slots, rank, mixed=layout.mixed)
    mark, cycle = layout.stops.get(rank, ("", False))
    while mark and made and made[-1][1]:
        made.pop()
    return "".join(text for text, _ in made) + (alarm(mark) if cycle and layout.how.color else mark)


def drawn(layout: Layout, bars: Bars, number: int, *, mixed: bool) -> list[tuple[str, bool]]:
    """Return the texts of a row, each with whether it is idle time: one per bar, or per column if columns are mixed."""
    if mixed:
        return [
            (layout.how.sign("idle"), True) if i == IDLE else (_mark(layout, i), False)
            for i in shares(layout, bars, number)
        ]

    def filled(i: int, first: int, last: int) -> str:
        text = layout.fill(i, last - first)
        return layout.stripped(i, first, text) if layout.chart.strips and bars is layout.slots else text

    every = layout.axis.unit or 1  # a dot for each unit of time; in every column if time is scaled
    dots = "".join(" " if column % every else layout.how.sign("idle") for column in range(layout.axis.columns))
    return [
        (dots[first:last], True) if i == IDLE else (_painted(layout, i, filled(i, first, last)), False)
        for i, first, last in spans(layout, bars, number)
    ]


def _painted(layout: Layout, index: int, text: str) -> str:
    """Return the text of a slot in the colours of its operations; a pair has the colour of its F up to the plus sign.

    Odd microbatches are bold, so that neighbours of the same colour can be distinguished.
    """
    if not layout.how.color:
        return text
    chart = layout.chart

    def shaded(part: str, i: int) -> str:
        colour = terminal(Op(int(chart.schedule.op[i])), int(chart.chunk[i]), chart.chunks)
        bold = bool(chart.schedule.microbatch[i] % 2)
        runs = re.split(f"({layout.how.sign('strip')}+)", part)
        return "".join(paint(run, STRIP if k % 2 else colour, bold=bold) for k, run in enumerate(runs))

    if KINDS[layout.kinds[index]] != "+":
        return shaded(text, index)
    first = text.find("+") if text.find("+") > 0 else len(text) // 3
    return shaded(text[:first], index) + shaded(text[first:], index + 1)


def _mark(layout: Layout, grain: int) -> str:
    kind, chunk = divmod(grain, layout.chart.chunks)
    letter = KINDS[kind]
    text = letter.lower() if chunk % 2 else letter
    if not layout.how.color:
        return text
    return paint(text, MIXED if letter == "+" else terminal(Op[letter], chunk, layout.chart.chunks))


_BLOCKS = {False: " ▁▂▃▄▅▆▇", True: " .:-=+*#"}  # by whether only ASCII is available


def memory(layout: Layout) -> Iterator[str]:
    """Yield the memory chart: a heading, and a line for each rank that ends with its peak."""
    top = max(layout.chart.analysis.memory.peak, default=Fraction(0))
    phases = f", {layout.how.sign('phase')} between phases" if any(layout.phases) else ""
    head, wide = f"memory: 0 to {shown(top)} activations{phases}", layout.left + layout.axis.columns
    if len(head) > wide:
        yield from wrapped(layout, head)
        head = ""
    yield f"{head:<{wide}} {'peak':>{layout.right}}"
    most = max(int(top / layout.chart.analysis.memory.part), 1)
    for rank, peak in enumerate(layout.peaks):
        line = _blocks(layout, most, rank)
        for instant in layout.phases[rank]:
            if layout.axis.begin < instant < layout.axis.end:
                line[int((instant - layout.axis.begin) / layout.axis.step)] = layout.how.sign("phase")
        yield f"{layout.name(rank)}{''.join(line)} {peak:>{layout.right}}"


def _blocks(layout: Layout, most: int, rank: int) -> list[str]:
    """Return a character for each column: its peak in sevenths of the largest peak, rounded up."""
    blocks = _BLOCKS[layout.how.ascii]
    held = np.maximum(highest(layout.chart, rank, layout.axis.bounds), 0)
    level = -(-held * (len(blocks) - 1) // most)
    return [blocks[min(x, len(blocks) - 1)] for x in level.tolist()]


_WORDS = {**{op.name: op.kind.words for op in COMPUTES}, "+": "overlap, one slot"}


def title(layout: Layout) -> Iterator[str]:
    """Yield name, sizes and cost, then the scale, and the interval if only part of the run is drawn."""
    chart, at = layout.chart, layout.axis
    yield from wrapped(layout, caption.heading(chart, f" {caption.cost(chart)}"))
    part = ""
    if (at.begin, at.end) != (0, max(chart.times.makespan, 1)):
        part = f"time {chart.said(at.begin)} to {chart.said(at.end)} of {chart.unit.text(chart.makespan)}; "
    columns = max(at.unit, 1)
    unit = columns * at.step / chart.scale
    length = chart.unit.text(unit) if chart.unit else f"{shown(unit)} unit{'s' * (unit > 1)} of time"
    scale = f"{columns} column{'s' * (columns > 1)} = {length}"
    yield from wrapped(layout, part + scale)


def stopped(layout: Layout) -> Iterator[str]:
    """Yield the wait that blocks each rank: the ranks of the cycle one by one, with their marks, then the rest."""
    stop = layout.chart.analysis.standstill
    if stop is None:
        return
    lines = [(f"{layout.how.sign('cycle')} {caption.link(x)}", True) for x in stop.cycle]
    rest = [(f"{layout.how.sign('wait')} {caption.blocked(x)}", False) for x in caption.others(stop)]
    for line, red in [*lines[:NAMED], *rest[:NAMED]]:
        first, *more = wrap(line, layout.how.width, break_on_hyphens=False, subsequent_indent="  ")
        yield alarm(first[0]) + first[1:] if red and layout.how.color else first
        yield from more
    for left, what in ((len(lines) - NAMED, "waits of the cycle"), (len(rest) - NAMED, "ranks stop")):
        if left > 0:
            yield f"and {left} more {what}"


def legend(layout: Layout) -> Iterator[str]:
    """Yield the letters that occur, and signs that need an explanation."""
    seen = set(np.unique(layout.kinds).tolist())
    texts = [f"{letter} {_WORDS[letter]}" for i, letter in enumerate(KINDS) if i in seen]
    texts += [] if layout.mixed else [f"{layout.how.sign('strip')} {name}" for name in layout.chart.strips]
    whole = "   ".join(text.replace(" ", "\0") for text in [*texts, f"{layout.how.sign('idle')} idle"])
    for line in wrap(whole, layout.how.width, break_on_hyphens=False):
        yield "   ".join(_swatch(layout, text) for text in line.replace("\0", " ").split("   "))
    yield from wrapped(layout, _letters(layout))
    unseen = caption.timeless(layout.chart)
    if unseen:
        yield from wrapped(layout, f"{unseen} operation{'s' * (unseen > 1)} without duration cannot be seen")
    if layout.chart.stepped and not layout.mixed:
        yield from wrapped(layout, "! a STEP, which takes no time; shown only after operations that are wide enough")
    if any(layout.phases):
        yield from wrapped(layout, "phases: warm-up until a rank's first backward, cool-down after its last forward")


def _letters(layout: Layout) -> str:
    later = layout.chart.later
    odd = "odd chunks of a rank" if later.startswith("later") else later
    lower = f"; {odd} in lower case" if layout.chart.chunks > 1 else ""
    paler = f", {later} paler" if lower and layout.how.color else ""
    if layout.mixed:
        chunks = lower + paler if layout.chunked else ""
        return f"a column covers several slots and shows one kind; each kind gets columns by its share of time{chunks}"
    if layout.stages:
        return f"F9.5 is stage 9, microbatch 5{lower}{paler}"
    named = f", stages shown at --width {layout.naming(stages=True)}" if layout.chart.chunks > 2 else ""
    numbers = "the number is the microbatch"
    if not layout.numbered:
        numbers = f"microbatches are shown at --width {layout.naming(stages=False)}"
    return f"{numbers}{lower}{paler}{named}"


def wrapped(layout: Layout, text: str) -> list[str]:
    """Wrap text so that no line begins with a rank, as rows of the chart do."""
    whole = re.sub(r"(?<=\d) (?=%)", "\0", re.sub(r"on rank (?=\d)", "on\0rank\0", text))
    return [line.replace("\0", " ") for line in wrap(whole, layout.how.width, break_on_hyphens=False)]


def _swatch(layout: Layout, text: str) -> str:
    """Return an entry of the legend with its sign in colour; the + of an overlap stays uncoloured."""
    letter = text[0]
    if layout.how.color and letter == layout.how.sign("strip"):
        return paint(letter, STRIP) + text[1:]
    if not layout.how.color or letter not in Op.__members__:
        return text
    return paint(letter, terminal(Op[letter], 0, 1)) + text[1:]
