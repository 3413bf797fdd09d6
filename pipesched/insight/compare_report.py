"""Writes a comparison as text and as JSON. The table has these columns, among others:

bubble:         The idle time of all ranks / (ranks x makespan); by span, with the span instead of the makespan.
idle / work:    The idle time over the work of all ranks, which half of the literature calls the bubble fraction.
peak:           The largest number of activations on any rank, in microbatches through 1/p of the model.
parameters:     The largest share of the model that a rank holds: stages / S, counting a stage on each route.
bytes:          With a model, the most bytes that a rank needs, as `verify` counts them.
exposed:        With parts, the largest communication time on a rank that compute does not hide.
hidden:         With parts, the share of all ranks' communication that compute hides.
lower bound:    A bound on the makespan of all orders of these operations on this placement, within the caps if given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from pipesched import render
from pipesched.diagnostics import Code, Diagnostic, Judged, exit_status
from pipesched.engines.costs import COUNTED, Exposed
from pipesched.insight.jitter import Jitter, near
from pipesched.model.numbers import Value, digits, exact, percent, shown
from pipesched.model.units import NO_UNIT, Unit
from pipesched.planning.byte_counts import gigabytes
from pipesched.views.plot import Point
from pipesched.views.tables import grouped, ratio, short, table

_HEADERS = (
    "makespan",
    "span",
    "bubble",
    "bubble\nby span",
    'idle / work\n"bubble fraction"',
    "peak",
    "messages",
    "parameters\nof a rank",
    "lower bound",
)
_UNITS = {
    False: "costs of 1/p of the model; each of S stages takes p/S of them",
    True: "costs of one stage, whatever its size (--cost-per stage)",
}


@dataclass(frozen=True)
class Row(Judged):
    """The figures of a schedule at a size; None if the file has an error that prevents them. share: the share of the
    model on the rank that holds the most. own_costs: whether the file gives some of the costs. assumed: derived costs,
    each with the costs that it follows from. remarks: the assumptions as text, and further remarks on the costs.
    rests_on: the assumptions about costs and bytes, as text; doubts: contradictory or unused costs, as text. work: the
    reasons why this schedule does less work than others, and the ranks without work. queued: the makespan if messages
    queue, under the named communication model. jitter: the makespan with random times. exposed: the communication that
    compute does not hide, if parts are given. versions: the largest number of weight versions alive on a rank, if STEPs
    are inside the order. bytes: the peak bytes of each rank, if a model is given.
    """

    source: str
    name: str
    parameters: Mapping[str, Value]
    costs: Mapping[str, object] = field(default_factory=dict)
    makespan: Fraction | None = None
    span: Fraction | None = None
    idle: Fraction | None = None
    bubble: Fraction | None = None
    span_bubble: Fraction | None = None
    overhead: Fraction | None = None
    peak: Fraction | None = None
    messages: int | None = None
    share: Fraction | None = None
    bound: Fraction | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    own_costs: bool = False
    assumed: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    rests_on: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    work: tuple[str, ...] = ()
    queued: Fraction | None = None
    jitter: Jitter | None = None
    exposed: Exposed | None = None
    versions: int | None = None
    bytes: tuple[int, ...] = ()

    @property
    def refused(self) -> bool:
        """True if the schedule itself refuses this size."""
        return self.fault is not None and self.fault.code is Code.REQUIRE


@dataclass(frozen=True)
class Comparison:
    """The rows, file by file, with sizes in order. unit: the unit of times. timed: whether costs are times of a model's
    stages on a device. growing: on request, makespans against the ratio of communication to compute.
    """

    rows: tuple[Row, ...]
    per_stage: bool
    unit: Unit = NO_UNIT
    comm: str | None = None
    timed: bool = False
    growing: tuple[Point, ...] = ()

    @property
    def exit_status(self) -> int:
        """The exit status for the findings; refused sizes count only if every size is refused."""
        every = all(row.refused for row in self.rows)
        return exit_status(found for row in self.rows if every or not row.refused for found in row.diagnostics)

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int | None = None, *, verbose: bool = False) -> str:
        """Return the unit, the table (in two halves if it is wider than `width`), and the reasons for empty rows.
        verbose: all assumptions.
        """
        headers, rows = self.cells()
        lead = len(headers) - len(self._columns()[0])

        def part(begin: int, end: int) -> str:
            return table((*headers[:lead], *headers[begin:end]), [[*row[:lead], *row[begin:end]] for row in rows])

        parts, half = [table(headers, rows)], (lead + len(headers) + 1) // 2
        if width is not None and max(map(len, parts[0].splitlines())) > width:
            parts = [part(lead, half), part(half, len(headers))]
        return "\n\n".join([*self.unit_line(), *parts, *self.below(verbose=verbose)])

    def unit_line(self) -> list[str]:
        """Return the line that explains the unit of time; none if costs are times of a model on a device."""
        return [] if self.timed else [f"{'times' if self.unit else 'unit of time'}: {_UNITS[self.per_stage]}"]

    def below(self, *, verbose: bool = False) -> list[str]:
        """Return the paragraphs below the table: reasons and remarks, and assumptions."""
        said = ([*_notes(self)], render.assumptions(self.rests_on, verbose=verbose))
        return ["\n".join(lines) for lines in said if lines]

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Return the column heads and the rows of the whole table: names, parameters and figures."""
        names = list(dict.fromkeys(name for row in self.rows for name in row.parameters))
        names.sort(key=lambda name: ("pvm".find(name) % 4, name))
        headers, figures = self._columns()
        lead = [[row.name, *(render.size(row.parameters.get(name, "")) for name in names)] for row in self.rows]
        return ["schedule", *map(render.clean, names), *headers], [[*a, *b] for a, b in zip(lead, figures, strict=True)]

    def _columns(self) -> tuple[list[str], list[list[str]]]:
        """Return the column heads of the figures, and the figures of every row."""
        cells, headers = [_cells(row, self.unit) for row in self.rows], [*_HEADERS]
        for wanted, before, heads, figures_of in self._more():
            if wanted:
                at = headers.index(before)
                headers[at:at] = heads
                for row, figures in zip(self.rows, cells, strict=True):
                    figures[at:at] = figures_of(row)
        if self.explains:
            headers[headers.index("peak")] = "peak,\nactivations"
        return headers, cells

    def _more(self) -> Iterator[tuple[bool, str, list[str], Callable[[Row], Iterable[str]]]]:
        """Yield each optional column group: whether it is shown, the column before which it is inserted, its heads, and
        its figures.
        """
        rows, unit = self.rows, self.unit
        yield (
            any(row.jitter for row in rows),
            "span",
            ["p50", "p95"],
            lambda row: [near(x, unit) for x in (row.jitter.p50, row.jitter.p95)] if row.jitter else "--",
        )
        queued = f"makespan under\n{render.clean(self.comm or '')}"
        yield self.comm is not None, "span", [queued], lambda row: [short(row.queued, unit)]
        fullest = ["bytes of the\nfullest rank"]
        held = any(row.bytes for row in rows)
        yield held, "messages", fullest, lambda row: [gigabytes(max(row.bytes)) if row.bytes else "-"]
        hidden = ["exposed", "hidden"]
        exposed = any(row.exposed for row in rows)
        yield exposed, "messages", hidden, lambda row: row.exposed.cells() if row.exposed else "--"
        alive = any(row.versions for row in rows)
        versions = ["weight\nversions"]
        yield alive, "messages", versions, lambda row: ["-" if row.makespan is None else str(row.versions or 1)]

    @property
    def explains(self) -> bool:
        """True if figures depend on a transformer or a device, which is named below the table."""
        return bool(self.unit) or any(row.bytes for row in self.rows)

    @property
    def rests_on(self) -> list[str]:
        """The assumptions about a transformer and its device, with the names of the rows if only some have them."""
        if not self.explains:
            return []
        timed = {row.name for row in self.rows if row.makespan is not None}
        said = grouped((one, row.name) for row in self.rows for one in row.rests_on)
        return [
            one if timed <= {*names} else f"{', '.join(dict.fromkeys(names))}: {one}" for one, names in said.items()
        ]

    def to_json(self) -> dict[str, object]:
        """Return the published JSON form, see ``emit/README.md``."""
        return {
            "ok": self.exit_status == 0,
            "cost_per": "stage" if self.per_stage else "rank",
            **({"unit": self.unit.name} if self.unit else {}),
            "rows": [_row_json(row) for row in self.rows],
        }

    def points(self) -> list[Point]:
        """Return the bubble in percent against peak memory for all rows that can be compared, with one series per
        schedule.
        """
        found = []
        for row in self.rows:
            if row.bubble is not None and row.peak is not None and not self.apart(row):
                sizes = " ".join(f"{name}={render.size(value)}" for name, value in row.parameters.items())
                found.append(Point(row.peak, row.bubble * 100, row.name, sizes))
        return found

    def apart(self, row: Row) -> str:
        """Return the reason why a row cannot be compared with the others; empty if it can."""
        if row.makespan is None:
            return row.fault.message.removeprefix(f"{row.name} ") if row.fault else "has no timeline"
        others = not all(other.own_costs for other in self.rows)
        return "; ".join((*row.work, *["with the costs in its file"] * (row.own_costs and others)))

    def plot(self) -> str:
        """Plot the bubble against peak memory, with the reasons for omitted rows, or makespans against traffic."""
        from pipesched.views.plot import plot

        if self.growing:
            title, notes = (
                "makespan as communication grows",
                ["only the parts on other engines are scaled"],
            )
            x, y = "communication : compute, summed over all parts", f"makespan, {self.unit.words or 'units of time'}"
            return plot(self.growing, x=x, y=y, title=title, notes=notes, said=(shown, self.unit.text))
        x, y = "peak activations of a rank, in microbatches through 1/p of the model", "bubble, %"
        points = self.points()
        one_size = len(points) == len({point.series for point in points})
        left_out = grouped((why, row.name) for row in self.rows if (why := self.apart(row)))
        notes = [f"not drawn: {', '.join(dict.fromkeys(names))}: {why}" for why, names in left_out.items()]
        notes += [f"{row.name}: {remark}" for row in self.rows if not self.apart(row) for remark in row.remarks]
        words = points[0].note.split() if points else []
        shared = [word for word in words if all(word in point.note.split() for point in points)]
        title = f"bubble against memory, {' '.join(shared)}" if shared else "bubble against memory"
        rounded = (lambda bubble: percent(bubble / 100)) if self.unit else shown
        return plot(points, x=x, y=y, title=title, frontier=one_size, notes=notes, said=(shown, rounded))


def _cells(row: Row, unit: Unit) -> list[str]:
    """Return the figures of a row, as text."""
    reached = " reached" if row.bound is not None and row.bound == row.makespan else ""
    first = "refused" if row.refused else short(row.makespan, unit)
    shares = map(ratio, (row.bubble, row.span_bubble, row.overhead))
    held = "-" if row.share is None else str(row.share)
    peak = digits(row.peak) if row.peak is not None and (unit or row.bytes) else short(row.peak)
    counts = peak, short(row.messages), held
    return [first, short(row.span, unit), *shares, *counts, short(row.bound, unit) + reached]


def _notes(comparison: Comparison) -> Iterator[str]:
    """Yield errors, refusals, costs that only some files set, assumptions, and omissions."""
    for row in comparison.rows:
        if row.fault is not None:
            title = " ".join([row.name, *(f"{name}={render.size(value)}" for name, value in row.parameters.items())])
            yield render.clean(f"{title}: {row.fault.code}: {row.fault.message}")
    yield from _figures(comparison.rows)
    own = [row.name for row in comparison.rows if row.own_costs]
    if own and len(own) < len(comparison.rows):
        yield render.clean(
            f"{', '.join(dict.fromkeys(own))}: with the costs in its file; --cost sets the same costs for all"
        )
    own_remarks = [(row.doubts if comparison.explains else row.remarks, row) for row in comparison.rows]
    said = grouped((remark, row.name) for remarks, row in own_remarks for remark in (*remarks, *row.work))
    for remark, names in said.items():
        yield render.clean(f"{', '.join(dict.fromkeys(names))}: {remark}")


def _figures(rows: Sequence[Row]) -> Iterator[str]:
    """Yield notes on the draws behind the columns p50 and p95, and on how exposed communication is counted."""
    if drawn := [row.jitter for row in rows if row.jitter]:
        fewest, most = (f"{end(x.draws for x in drawn):,}" for end in (min, max))
        count = most if fewest == most else f"{fewest} to {most}"
        yield f"p50, p95: the median and the 95th percentile of the makespan over {count} draws"
        yield from dict.fromkeys(said for x in drawn for said in x.assumed)
    if any(row.exposed for row in rows):
        yield f"exposed: {COUNTED}"


def _row_json(row: Row) -> dict[str, object]:
    return {
        "name": row.name,
        "source": row.source,
        "parameters": dict(row.parameters),
        **exact(costs=row.costs),
        "assumed_costs": dict(row.assumed),
        "cost_remarks": list(row.remarks),
        "work_remarks": list(row.work),
        **exact(makespan=row.makespan, span=row.span, idle=row.idle, bubble=row.bubble, span_bubble=row.span_bubble),
        **exact(queued_makespan=row.queued, bubble_ratio=row.bubble, overhead=row.overhead, peak=row.peak),
        **({} if row.jitter is None else {"jitter": row.jitter.to_json()}),
        **({} if row.exposed is None else {"exposed": row.exposed.to_json()}),
        **({} if row.versions is None else {"versions": row.versions}),
        "bytes": list(row.bytes) or None,
        "messages": row.messages,
        **exact(parameters_per_rank=row.share, lower_bound=row.bound),
        "diagnostics": [render.as_json(diagnostic) for diagnostic in row.diagnostics],
    }
