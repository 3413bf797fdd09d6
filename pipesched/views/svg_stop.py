"""Where a run stops for good, in a figure: hatched to the edge, with the messages of the cycle at the right of it.

    rank 0  [F0][F1]    [B0][F2]//✗ 0SEND_F2 waits for 1RECV_F2//|--.
                                                                    | message
    rank 1      [F0][B0][F1][B1]//✗ 1SEND_B1 waits for 0RECV_B1//|<-'

Hatching, the cross and the arrows tell it to all eyes, and in black and white; colour only adds to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from pipesched.analysis.standstill import Link, Stand, Standstill
from pipesched.safe import safe
from pipesched.views import standing
from pipesched.views.chart import Chart
from pipesched.views.svg_cells import Frame, number

_LETTER, _LANE = 8, 12  # pixels: of a bold letter, and from message to message


@dataclass(frozen=True, eq=False)
class Stop:
    """What is drawn at the right of the last operations. scope: the class of the figure."""

    chart: Chart
    stop: Standstill
    frame: Frame
    scope: str = ""

    @property
    def shown(self) -> bool:
        """Whether the part of time that is drawn comes to the end of what runs."""
        return self.frame.end >= self.chart.times.makespan

    @property
    def width(self) -> int:
        """Of what is added to the picture."""
        return self._label + 10 + _LANE * (max(self._lanes.values(), default=-1) + 1) if self.shown else 0

    @cached_property
    def _marks(self) -> dict[int, tuple[str, str]]:
        """By rank: what stands in its row, and what a reader sees who points at it."""
        rest = {x.rank: (x.at, standing.stand(x)) for x in standing.others(self.stop)}
        return rest | {x.stand.rank: (standing.short(x), standing.link(x)) for x in reversed(self.stop.cycle)}

    @property
    def _label(self) -> int:
        return 26 + _LETTER * max(len(text) for text, _ in self._marks.values())

    @property
    def _edge(self) -> float:
        """Where the rows of those that wait end."""
        return float(self.frame.x(self.frame.end)) + (self._label if self.shown else 0)

    @cached_property
    def _lanes(self) -> dict[Link, int]:
        """Messages that pass each other have lanes of their own."""
        busy: list[set[int]] = []
        lanes: dict[Link, int] = {}
        for x in sorted(self._apart(), key=lambda x: abs(x.other - x.stand.rank)):
            low, high = sorted((x.stand.rank, x.other))
            rows = set(range(low, high + 1))
            lane = next((i for i, taken in enumerate(busy) if not taken & rows), len(busy))
            busy[lane:] = [busy[lane] | rows if lane < len(busy) else rows, *busy[lane + 1 :]]
            lanes[x] = lane
        return lanes

    def _apart(self) -> list[Link]:
        return [x for x in self.stop.cycle if x.other != x.stand.rank]

    def lines(self) -> Iterator[str]:
        """Rows that wait, then messages."""
        yield (
            f'<defs><pattern id="{self.scope}h" width="6" height="6" patternUnits="userSpaceOnUse" '
            f'patternTransform="rotate(45)"><path class="e" d="M0 0v6"/></pattern>'
            f'<marker id="{self.scope}q" class="q" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="9" '
            'markerHeight="9" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L6 3L0 6z"/></marker></defs>'
        )
        for x in self.stop.waiting:
            yield from self._row(x)
        if self.shown:
            yield from (self._message(x, lane) for x, lane in self._lanes.items())

    def _row(self, x: Stand) -> Iterator[str]:
        """From the end of the last operation of a rank on."""
        frame, start = self.frame, self.chart.schedule.start
        until = int(self.chart.times.end[int(start[x.rank]) : int(start[x.rank + 1])].max(initial=0))
        if until > frame.end:
            return
        left, y = float(frame.x(max(until, frame.begin))), frame.y(x.rank)
        cycle = x.rank in self.stop.ranks
        text, told = self._marks[x.rank]
        box = f'x="{number(left)}" y="{y}" width="{number(self._edge - left)}" height="{frame.row}"'
        fill = f' style="fill:url(#{self.scope}h)"' if cycle else ""
        yield f'<rect class="{"x" if cycle else "w"}"{fill} {box}><title>{safe(told, "xml")}</title></rect>'
        if self.shown:
            yield from self._words(left, y + frame.row / 2, text, cycle=cycle)

    def _words(self, x: float, y: float, text: str, *, cycle: bool) -> Iterator[str]:
        """On the ground of the page, so that the hatching does not cross them."""
        wide = _LETTER * len(text) + (22 if cycle else 6)
        yield f'<rect class="z" x="{number(x + 3)}" y="{number(y - 8)}" width="{wide}" height="16"/>'
        if cycle:
            yield f'<path class="u" d="M{number(x + 7)} {number(y - 4)}l8 8m0 -8l-8 8"/>'
        at = number(x + (22 if cycle else 6))
        yield f'<text class="{"v" if cycle else "t"}" x="{at}" y="{number(y + 4)}">{safe(text, "xml")}</text>'

    def _message(self, x: Link, lane: int) -> str:
        """From the row of its sender to that of its receiver; a line, where there is neither."""
        source, target = (x.other, x.stand.rank) if x.way < 0 else (x.stand.rank, x.other)
        edge, lean = self._edge, self._edge + 10 + _LANE * lane
        leaves, arrives = (self.frame.y(rank) + self.frame.row * part for rank, part in ((source, 0.7), (target, 0.3)))
        head = f' marker-end="url(#{self.scope}q)"' if x.way else ""
        path = f"M{number(edge)} {number(leaves)}H{number(lean)}V{number(arrives)}H{number(edge + 1)}"
        return f'<path class="r"{head} d="{path}"><title>{safe(standing.link(x), "xml")}</title></path>'
