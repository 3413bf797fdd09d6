"""The parts of a slot: a lane per engine, parts in the colours of F, I and W, and the critical path.

    compute  [F.attn 0][I.mlp 1][W.mlp 1][F.mlp 0]...
    comm     [I.combine 1][F.dispatch 0][I.dispatch 1]...
    exposed  [         ]          [      ]

A path of parts that wait for each other is outlined. The last lane shows, in a separate colour, when only other engines
run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction

from pipesched.diagnostics import Code, fail
from pipesched.engines.costs import made, of_options
from pipesched.engines.pair import TooLong
from pipesched.engines.parts import OWN, Parts, Placed, Stage, critical, least, placed
from pipesched.examine import Examination
from pipesched.model.numbers import exact
from pipesched.model.ops import Op
from pipesched.model.schedule import Schedule
from pipesched.model.units import Unit
from pipesched.support.safe import safe
from pipesched.views import palette
from pipesched.views.chart.axis import nice
from pipesched.views.chart.chart import Chart
from pipesched.views.chart.colours import STRIP_FILL
from pipesched.views.chart.views import Laid, Request
from pipesched.views.rows import Shares
from pipesched.views.svg import written
from pipesched.views.svg_shapes import number

_WIDTH, _ROW, _GAP, _TOP, _LETTER = 1200, 26, 8, 56, 6
_COLUMNS, _TICKS = 100, 10
_KINDS = {"F": Op.F, "I": Op.I, "W": Op.W}


@dataclass(frozen=True)
class Slot:
    """A slot and its parts. name: the names of its operations. rank: the rank that runs it. below: a lower bound on the
    time of any order of its parts.
    """

    name: str
    rank: int
    unit: Unit
    runs: tuple[Placed, ...]
    below: Fraction | None = None

    @property
    def length(self) -> Fraction:
        """The time from the start of the slot to its end."""
        return max((x.end for x in self.runs), default=Fraction(0))

    @property
    def engines(self) -> list[str]:
        """The engines, the rank's own first."""
        return sorted({OWN, *(x.part.engine for x in self.runs)}, key=lambda engine: (engine != OWN, engine))

    @property
    def exposed(self) -> list[tuple[Fraction, Fraction]]:
        """The intervals in which the rank's own engine does not run."""
        own = sorted((x.begin, x.end) for x in self.runs if x.part.engine == OWN and x.part.time)
        edges = [Fraction(0), *(edge for run in own for edge in run), self.length]
        return [(low, high) for low, high in zip(edges[::2], edges[1::2], strict=True) if low < high]

    @property
    def title(self) -> str:
        """The title of a figure: the slot, its rank and its times."""
        return f"{self.name} on rank {self.rank}: {self.times}"

    @property
    def times(self) -> str:
        """The time of the slot, the lower bound for a pair of F and B, and the time of each engine."""
        said = self.unit.text
        bound = "" if self.below is None else f" as issued; no order takes less than {said(self.below)}"
        loads = [f"{engine} {said(self.load(engine))}" for engine in self.engines]
        left = sum((high - low for low, high in self.exposed), Fraction(0))
        return f"{said(self.length)}{bound} ({', '.join([*loads, f'exposed {said(left)}'])})"

    def load(self, engine: str) -> Fraction:
        """Return how long an engine runs."""
        return sum((x.end - x.begin for x in self.runs if x.part.engine == engine), Fraction(0))


def lay(examination: Examination, how: Request) -> Laid:
    """Return the slot that `--slot` names.

    Raises:
        PipeschedError: PS225 if there is no such operation, or if there are no parts.
    """
    analysis = examination.analysis
    schedule = analysis.schedule
    if not analysis.of(Parts).given:
        raise fail(
            Code.USAGE,
            "--slot draws the parts of an operation's slot, but no parts are given",
            help="give --parts, or `parts` in the file",
        )
    parts = of_options(analysis, schedule.placement)
    head, high = _found(schedule, str(how.more["slot"]))
    operations = [schedule[i] for i in range(head, high)]
    stages, index = made(parts, schedule)
    first, last = (stages[index[operation.stage]] for operation in (operations[0], operations[-1]))
    name = "+".join(f"{x.op.name}{x.stage}.{x.microbatch}" for x in operations)
    kinds = "".join(operation.op.name for operation in operations)
    try:
        slot = _slot(name, int(schedule.rank[head]), parts.unit, kinds, (first, last))
    except TooLong:
        raise fail(Code.USAGE, f"{kinds} have too many parts to determine their least time") from None
    return Laid(analysis, slot, {"slot": _published(slot)})


def _slot(name: str, rank: int, unit: Unit, kinds: str, stages: tuple[Stage, Stage]) -> Slot:
    below = least(*stages) if kinds == "FB" else None
    return Slot(name, rank, unit, tuple(placed(kinds, *stages)), below)


def insets(chart: Chart) -> tuple[list[dict[str, object]], list[int]]:
    """Return the distinct slots of a schedule for the page, and the index of each operation's slot: -1 for an operation
    without parts, or with too many parts to compute their least time.
    """
    found, of = _distinct(chart)
    return [
        {**_inset(slot), "marked": [[*map(float, x)] for x in _marked(chart, slot, took)]} for slot, took in found
    ], of


def strips(chart: Chart) -> list[Shares]:
    """Return, for each operation, the intervals in which only other engines run, as shares of the slot; the second
    operation of a pair has no intervals.
    """
    found, of = _distinct(chart)
    every = [_marked(chart, slot, took) for slot, took in found]
    second = chart.schedule.joined.tolist()
    return [() if at < 0 or joined else every[at] for at, joined in zip(of, second, strict=True)]


def _marked(chart: Chart, slot: Slot, took: int) -> Shares:
    """Return the exposed intervals of a slot, as shares of its length. took: the slot's length in ticks. If it differs
    from the length that follows from the parts, the exposed share is put at the end.
    """
    unit = chart.unit.seconds / slot.unit.seconds if chart.unit and slot.unit else Fraction(1)
    time = Fraction(took, chart.scale) * unit
    if time == slot.length:
        return [(low / time, high / time) for low, high in slot.exposed]
    return [(slot.load(OWN) / time, Fraction(1))] if time > slot.load(OWN) else ()


def _distinct(chart: Chart) -> tuple[list[tuple[Slot, int]], list[int]]:
    """Return the distinct slots and their lengths in ticks, and for each operation the index of its slot, or -1 for
    none.
    """
    schedule, parts = chart.schedule, of_options(chart.analysis, chart.schedule.placement)
    stages, index = made(parts, schedule)
    kinds, on = [Op(op).name for op in schedule.op.tolist()], [index[s] for s in schedule.stage.tolist()]
    joined = [*schedule.joined.tolist(), False]
    took = (chart.times.end - chart.times.start).tolist()
    found: list[tuple[Slot, int]] = []
    numbers: dict[tuple[str, int, int, int], int] = {}
    of: list[int] = []
    for i in range(len(schedule)):
        if not joined[i]:
            last = i + joined[i + 1]
            key = "".join(kinds[i : last + 1]), on[i], on[last], took[i]
            if key not in numbers:
                numbers[key] = -1
                with suppress(TooLong, KeyError):
                    slot = _slot("", 0, parts.unit, key[0], (stages[key[1]], stages[key[2]]))
                    numbers[key] = len(found)
                    found.append((slot, took[i]))
        of.append(numbers[key])
    return found, of


def _inset(slot: Slot) -> dict[str, object]:
    """Return a slot for the page: times as shares of its length."""
    path, length = critical(slot.runs), slot.length or Fraction(1)
    return {
        "times": slot.times,
        "engines": slot.engines,
        "parts": [
            [
                x.letter,
                f"{x.part.name} {x.layer}",
                slot.engines.index(x.part.engine),
                float(x.begin / length),
                float(x.end / length),
                x in path,
                f"{slot.unit.text(x.begin)} to {slot.unit.text(x.end)}",
            ]
            for x in slot.runs
        ],
        "exposed": [[float(low / length), float(high / length)] for low, high in slot.exposed],
        "colour": STRIP_FILL,
    }


def _found(schedule: Schedule, asked: str) -> tuple[int, int]:
    """Return the index of the first operation of a slot, and of the first operation after the slot."""
    word = re.fullmatch(r"([FIWB])(\d{1,9})\.(\d{1,9})", asked)
    for i in range(len(schedule)) if word else ():
        one = schedule[i]
        if word and (one.op.name, one.stage, one.microbatch) == (word[1], int(word[2]), int(word[3])):
            head = i - int(schedule.joined[i])
            return head, head + 1 + int(head + 1 < len(schedule) and schedule.joined[head + 1])
    help = "name an operation by kind, stage and microbatch, such as F0.3"
    raise fail(Code.USAGE, f"the schedule does not contain the operation {asked!r}", help=help)


def _published(slot: Slot) -> dict[str, object]:
    path = critical(slot.runs)
    return {
        "name": slot.name,
        "rank": slot.rank,
        **exact(time=slot.length, below=slot.below),
        "parts": [
            {
                "letter": x.letter,
                "layer": x.layer,
                "part": x.part.name,
                "engine": x.part.engine,
                **exact(begin=x.begin, end=x.end),
                "critical": x in path,
            }
            for x in slot.runs
        ],
    }


def text(chart: Chart, how: Request, slot: Slot) -> str:
    """Return the lanes in columns, and the parts with their times; a star marks parts on the critical path."""
    columns = (how.width or _COLUMNS) - 2 - max(map(len, slot.engines))
    path, length = critical(slot.runs), slot.length or Fraction(1)
    lines = [slot.title, ""]
    for engine in slot.engines:
        row = [" "] * columns
        for x in slot.runs:
            if x.part.engine == engine:
                low, high = (int(columns * t / length) for t in (x.begin, x.end))
                row[low:high] = _bar(f"{x.letter}.{x.part.name}", high - low)
        lines.append(f"{engine.ljust(max(map(len, slot.engines)))}  {''.join(row)}".rstrip())
    said = slot.unit.text
    rows = [
        f"{'*' if x in path else ' '} {x.letter}.{x.part.name} of layer {x.layer} on {x.part.engine}: "
        f"{said(x.begin)} to {said(x.end)}"
        for x in sorted(slot.runs, key=lambda x: (x.begin, x.end))
    ]
    return "\n".join(
        [*lines, "", *rows, "", "* critical path: each of these parts begins when the previous one ends", ""]
    )


def _bar(name: str, width: int) -> str:
    """Return a bar of `width` columns, with as much of the name as fits."""
    return "" if width < 1 else name[0] if width < 2 else f"[{name[: width - 2].ljust(width - 2, '-')}]"


def svg(chart: Chart, how: Request, slot: Slot) -> str | bytes:
    """Return the slot as a figure."""
    return written("\n".join(_lines(slot)) + "\n", how.written)


def _lines(slot: Slot) -> Iterator[str]:
    left = 20 + 8 * max(len("exposed"), *map(len, slot.engines))
    scale = Fraction(_WIDTH - left - 16) / (slot.length or 1)
    foot = _TOP + (1 + len(slot.engines)) * (_ROW + _GAP)
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{foot + 56}">'
    edges = ".edge{stroke:#222;stroke-width:1}.path{stroke:#b00020;stroke-width:3}"
    yield f"<style>{palette.plain_sheet()}{edges}</style>"
    yield '<rect class="pipesched" width="100%" height="100%"/>'
    yield _text(12, 24, slot.title)
    path = critical(slot.runs)
    for lane, engine in enumerate(slot.engines):
        y = _TOP + lane * (_ROW + _GAP)
        yield _text(12, y + 18, engine)
        for x in sorted((x for x in slot.runs if x.part.engine == engine), key=lambda x: x in path):
            yield from _part(x, left + scale * x.begin, y, scale * (x.end - x.begin), path)
    y = _TOP + len(slot.engines) * (_ROW + _GAP)
    yield _text(12, y + 18, "exposed")
    for low, high in slot.exposed:
        shape = f'x="{number(left + scale * low)}" y="{y}" width="{number(scale * (high - low))}" height="{_ROW}"'
        yield f'<rect {shape} fill="{STRIP_FILL}"/>'
    step = nice(slot.length / _TICKS) if slot.length else Fraction(1)
    for tick in range(int(slot.length / step) + 1):
        yield _text(left + scale * step * tick, foot + 12, number(step * tick))
    key = ", ".join(f"{letter} {op.kind.words}" for letter, op in _KINDS.items())
    unit = slot.unit.words or "units of time"
    yield _text(12, foot + 36, f"{unit}; {key}; outlined: parts that begin when the previous one ends")
    yield "</svg>"


def _part(x: Placed, left: Fraction, y: int, width: Fraction, path: Sequence[Placed]) -> Iterator[str]:
    colour = palette.STYLES["default"].colour(_KINDS[x.letter])
    name = f"{x.letter}.{x.part.name} {x.layer}"
    edge = "path" if x in path else "edge"
    shape = f'x="{number(left)}" y="{y}" width="{number(width)}" height="{_ROW}"'
    yield f'<rect class="{edge}" {shape} fill="{colour}"><title>{safe(name, "xml")}</title></rect>'
    fits = name if _LETTER * len(name) <= width else name[2:6] if width >= _LETTER * 4 else ""
    if fits:
        yield (
            f'<text x="{number(left + width / 2)}" y="{y + 17}" text-anchor="middle" font-size="11" '
            f'font-family="sans-serif" fill="{palette.ink(colour)}">{safe(fits, "xml")}</text>'
        )


def _text(x: Fraction | int, y: int, words: str) -> str:
    return f'<text class="pipesched" x="{number(x)}" y="{y}">{safe(words, "xml")}</text>'
