"""A chart in characters: ranks down, time across.

             0    5    10   15                           the time
    rank 0   F0F1F2F3· · · B0  F4B1  ...                 a slot, its idle time as dots
    rank 1     ...

    out    ...                                      where activations are offloaded, the copies out and in

             0 to 4 activations, | between phases   peak
    rank 0   ▂▄▆▇▇▇▇▇|▇▇▇▇▇▆|▄▂                        4  what it holds

Where all fits, every slot has the columns of its time. Where a column holds several slots it shows one of their kinds.
At every scale the columns of a kind, idle time among them, are its share of the rank's time (`apportion`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial
from textwrap import wrap

import numpy as np

from pipesched.analysis.standstill import NAMED
from pipesched.chart import caption, slots
from pipesched.chart.apportion import intervals, rows
from pipesched.chart.axis import Axis, ruler
from pipesched.chart.chart import Chart, engines
from pipesched.chart.colours import MIXED, alarm, paint, terminal
from pipesched.chart.slots import KINDS, highest
from pipesched.chart.text_layout import Lanes, Layout, Text
from pipesched.diagnostics import Code, fail
from pipesched.model.columns import Column
from pipesched.model.numbers import shown
from pipesched.model.ops import COMPUTES, Op

_LEAST = 24  # columns without which no picture is of use

__all__ = ["Text", "render"]


def render(chart: Chart, how: Text | None = None) -> str:
    """The chart as lines of at most `width` characters, each ended.

    Raises:
        PipeschedError: PS225, a width below 24 columns, or a viewport without time.
    """
    how = how or Text()
    if how.width < _LEAST:
        raise fail(Code.USAGE, f"{how.width} columns are too few to draw in", help=f"give at least {_LEAST}")
    return "".join(line.rstrip() + "\n" for line in _lines(Layout(chart, how)))


def _lines(layout: Layout) -> Iterator[str]:
    yield from title(layout)
    yield ""
    yield " " * layout.left + ruler(layout.axis, layout.chart)
    lanes = _lanes(layout)
    for rank in range(layout.chart.schedule.ranks):
        yield layout.name(rank) + row(layout, rank)
        for engine in (2 * rank, 2 * rank + 1) if lanes else ():
            assert lanes is not None
            yield lanes.name(engine) + row(lanes, engine)
    yield from stopped(layout)
    yield ""
    yield from memory(layout)
    yield ""
    yield from legend(layout)


def _lanes(layout: Layout) -> Lanes | None:
    """The copies, if there are any."""
    drawn, copies = engines(layout.chart), layout.chart.times.copies
    return None if drawn is None or copies is None else Lanes(drawn, layout.how, layout, copies.op[copies.start >= 0])


_IDLE = len(slots.KINDS)


def row(layout: Layout, rank: int) -> str:
    """The characters of a rank, from the first column to the last; where it stops for good, its mark."""
    made = _mixture(layout, rank) if layout.mixed else _slots(layout, rank)
    if rank not in layout.stops:
        return "".join(text for text, _ in made)
    while made and made[-1][1]:
        made.pop()
    mark, cycle = layout.stops[rank]
    return "".join(text for text, _ in made) + (alarm(mark) if cycle and layout.how.color else mark)


def _slots(layout: Layout, rank: int) -> list[tuple[str, bool]]:
    """Slot by slot, and whether that is idle time."""
    return [
        (_idle(layout, first, last), True) if i < 0 else (_painted(layout, i, layout.fill(i, last - first)), False)
        for i, first, last in spans(layout, rank)
    ]


def spans(layout: Layout, rank: int) -> list[tuple[int, int, int]]:
    """Each slot that is given columns: its first operation, or -1 for idle time; its first column, the one after it."""
    at, times, schedule = layout.axis, layout.chart.times, layout.chart.schedule
    part = slice(int(schedule.start[rank]), int(schedule.start[rank + 1]))
    inside = (times.end[part] > at.begin) & (times.start[part] < at.end) & (times.start[part] >= 0)
    index = part.start + np.flatnonzero(inside & ~schedule.joined[part])
    times_of = zip(index.tolist(), at.fine(times.start[index]), at.fine(times.end[index]), strict=True)
    whole_row = (-1, at.columns * at.whole, at.columns * at.whole)
    things: list[int] = []
    edges: list[int] = []
    for i, begin, end in (*times_of, whole_row):
        for thing, until in ((-1, begin), (i, end)):
            if until > (edges[-1] if edges else 0):
                things.append(thing)
                edges.append(until)
    kind = [_IDLE if i < 0 else int(layout.kinds[i]) for i in things]
    return [(things[x], first, last) for x, first, last in intervals(edges, kind, at.columns, at.whole)]


def _idle(layout: Layout, begin: int, end: int) -> str:
    """A dot for each unit of time; in every column where time is scaled."""
    every = layout.axis.unit or 1
    return "".join(" " if column % every else layout.sign("idle") for column in range(begin, end))


def _painted(layout: Layout, index: int, text: str) -> str:
    """The text of a slot in the colours of its operations; of a pair, up to the plus in that of its F.

    Odd microbatches are bold, so that neighbours of one colour are distinct.
    """
    if not layout.how.color:
        return text
    if slots.KINDS[layout.kinds[index]] != "+":
        return paint(text, _colour(layout, index), bold=_odd(layout, index))
    first = text.find("+") if text.find("+") > 0 else len(text) // 3
    parts = ((text[:first], index), (text[first:], index + 1))
    return "".join(paint(part, _colour(layout, i), bold=_odd(layout, i)) for part, i in parts)


def _odd(layout: Layout, index: int) -> bool:
    return bool(layout.chart.schedule.microbatch[index] % 2)


def _colour(layout: Layout, index: int) -> int:
    return terminal(Op(int(layout.chart.schedule.op[index])), int(layout.chunk[index]), layout.chunks)


def _mixture(layout: Layout, rank: int) -> list[tuple[str, bool]]:
    """Column by column one of the kinds in it, each in its share of the columns, with its chunk where that is shown."""
    at = layout.axis
    busy = shares(layout.chart, layout.grains, rank, at)
    idle = [max(at.whole - sum(column), 0) for column in zip(*busy.values(), strict=True)] or [at.whole] * at.columns
    grains = [*busy, _IDLE * layout.chunks]
    shown = rows([*(x.tolist() for x in busy.values()), idle], [x // layout.chunks for x in grains], at.whole)
    return [(layout.sign("idle"), True) if x == len(busy) else (_mark(layout, grains[x]), False) for x in shown]


def _mark(layout: Layout, grain: int) -> str:
    kind, chunk = divmod(grain, layout.chunks)
    letter = slots.KINDS[kind]
    text = letter.lower() if chunk % 2 else letter
    if not layout.how.color:
        return text
    return paint(text, MIXED if letter == "+" else terminal(Op[letter], chunk, layout.chunks))


def shares(chart: Chart, kind: Column, rank: int, axis: Axis) -> dict[int, Column]:
    """How long each kind that occurs runs in each column, of `axis.whole`. Slots of one kind never overlap."""
    part = slice(int(chart.schedule.start[rank]), int(chart.schedule.start[rank + 1]))
    seen = (chart.times.start[part] >= 0) & ~chart.schedule.joined[part]
    start, end, kind = chart.times.start[part][seen], chart.times.end[part][seen], kind[part][seen]
    fine = axis.step.denominator
    wide = (int(chart.times.makespan) + axis.end) * fine >= 2**62  # Python's numbers have no end
    start, end = (np.minimum(x, axis.end).astype(object if wide else np.int64) - axis.begin for x in (start, end))
    start, end = start * fine, end * fine
    bounds = np.arange(axis.columns + 1, dtype=start.dtype) * axis.whole
    found = {}
    for number in np.unique(kind).tolist():
        begins, ends = start[kind == number], end[kind == number]
        before = np.concatenate([np.zeros(1, dtype=start.dtype), np.cumsum(ends - begins)])
        at = np.searchsorted(begins, bounds, side="right")
        last = np.where(at > 0, ends[np.maximum(at, 1) - 1], bounds)
        found[number] = np.diff(before[at] - np.maximum(last - bounds, 0))
    return found


_BLOCKS = {False: " ▁▂▃▄▅▆▇", True: " .:-=+*#"}  # by whether ASCII is all there is


def memory(layout: Layout) -> Iterator[str]:
    """A heading, and the line of each rank with its peak."""
    top = max(layout.chart.analysis.memory.peak, default=Fraction(0))
    head, wide = (
        f"memory: 0 to {shown(top)} activations"
        + (f", {layout.sign('phase')} between phases" if layout.phased else ""),
        layout.left + layout.axis.columns,
    )
    if len(head) > wide:
        yield from wrapped(layout, head)
        head = ""
    yield f"{head:<{wide}} {'peak':>{layout.right}}"
    blocks = partial(_blocks, layout, max(int(top / layout.chart.analysis.memory.part), 1))
    for rank, peak in enumerate(layout.peaks):
        line = blocks(rank)
        for instant in (int(layout.phases.steady[rank]), int(layout.phases.cooling[rank])):
            if layout.axis.begin < instant < layout.axis.end:
                line[int(layout.axis.column(np.array(instant)))] = layout.sign("phase")
        yield f"{layout.name(rank)}{''.join(line)} {peak:>{layout.right}}"


def _blocks(layout: Layout, most: int, rank: int) -> list[str]:
    """The most that is held in each column, in sevenths of the largest peak, rounded up."""
    blocks = _BLOCKS[layout.how.ascii]
    held = np.maximum(highest(layout.chart, rank, layout.axis.bounds), 0)
    level = -(-held * (len(blocks) - 1) // most)
    return [blocks[min(x, len(blocks) - 1)] for x in level.tolist()]


_WORDS = {**{op.name: op.kind.words for op in COMPUTES}, "+": "overlap, one slot"}


def title(layout: Layout) -> Iterator[str]:
    """Name, sizes and cost; then the scale, and the part of time if it is one."""
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
    """The last wait of each rank: those of the cycle one by one, with their marks, then the others."""
    stop = layout.chart.analysis.standstill
    if stop is None:
        return
    lines = [(f"{layout.sign('cycle')} {caption.link(x)}", True) for x in stop.cycle]
    rest = [(f"{layout.sign('wait')} {caption.blocked(x)}", False) for x in caption.others(stop)]
    for line, red in [*lines[:NAMED], *rest[:NAMED]]:
        first, *more = wrap(line, layout.how.width, break_on_hyphens=False, subsequent_indent="  ")
        yield alarm(first[0]) + first[1:] if red and layout.how.color else first
        yield from more
    for left, what in ((len(lines) - NAMED, "waits of the cycle"), (len(rest) - NAMED, "ranks stop")):
        if left > 0:
            yield f"and {left} more {what}"


def legend(layout: Layout) -> Iterator[str]:
    """The letters that occur, and what else cannot be guessed."""
    seen = set(np.unique(layout.kinds).tolist())
    texts = [f"{letter} {_WORDS[letter]}" for i, letter in enumerate(KINDS) if i in seen]
    for line in _filled(layout, [*texts, f"{layout.sign('idle')} idle"]):
        yield "   ".join(_swatch(layout, text) for text in line)
    yield from wrapped(layout, _letters(layout))
    unseen = caption.timeless(layout.chart)
    if unseen:
        yield from wrapped(layout, f"{unseen} operation{'s' * (unseen > 1)} of no duration cannot be seen")
    if layout.phased:
        yield from wrapped(layout, "phases: warm-up until a rank's first backward, cool-down after its last forward")


def _letters(layout: Layout) -> str:
    later = slots.later(layout.chart)
    odd = "odd chunks of a rank" if later.startswith("later") else later
    lower = f"; {odd} in lower case" if layout.chunks > 1 else ""
    paler = f", {later} paler" if lower and layout.how.color else ""
    if layout.mixed:
        chunks = lower + paler if layout.chunked else ""
        return f"a column shows one of the kinds in it, each as often as its share of the time{chunks}"
    if layout.stages:
        return f"F9.5 is stage 9, microbatch 5{lower}{paler}"
    named = f", stages named at --width {layout.naming(stages=True)}" if layout.chunks > 2 else ""
    numbers = "the number is the microbatch"
    if not layout.numbered:
        numbers = f"microbatches are numbered at --width {layout.naming(stages=False)}"
    return f"{numbers}{lower}{paler}{named}"


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


def _swatch(layout: Layout, text: str) -> str:
    """The letter in its colour; an overlap has those of its parts."""
    letter = text[0]
    if not layout.how.color or letter not in Op.__members__:
        return text
    return paint(letter, terminal(Op[letter], 0, 1)) + text[1:]
