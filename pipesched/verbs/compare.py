"""A table over schedules and sizes.

A parameter goes to the files that have it: `--v 2` is for the interleaved schedules of a comparison, and the others
are run once without it. A size that a schedule refuses is a row of its own, with the reason.

    bubble         idle time of all ranks / (ranks x makespan); by span with the span in the place of the makespan
    idle / work    the same idle time over the work of all ranks; half of the literature calls that the bubble fraction
    peak           most activations of any rank, in microbatches through 1/p of the model
    parameters     the largest share of the model that a rank holds: stages / S; a stage of each route counts
    lower bound    no order of these operations on this placement is faster, whatever memory it takes, or within the
                   caps that are asked for

Like is compared with like: costs are those of 1/p of the model, so that an operation of one of S stages takes p/S of
them; or, if asked for, those of one stage, whatever its size. Messages cost the same either way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from pipesched import render
from pipesched.analysis.idle import overhead
from pipesched.analysis.timeline import costs_used
from pipesched.assets import built_in
from pipesched.compile import examine, load
from pipesched.diagnostics import Code, Diagnostic, PipeschedError, exit_status, fail, fault_in
from pipesched.examine import Options
from pipesched.model.costs import Costs
from pipesched.model.numbers import Value, exact, ranges
from pipesched.model.ops import Op
from pipesched.model.placement import Placement
from pipesched.model.release import caps_by_rank
from pipesched.model.schedule import Schedule
from pipesched.readers import Loaded
from pipesched.report import Report
from pipesched.source import Source
from pipesched.verbs.library import shared, trains_fully
from pipesched.verbs.tables import ratio, short, table
from pipesched.views.plot import Point

if TYPE_CHECKING:
    from pipesched.optimizer.problem import Problem

_SEARCHED = 3_000  # operations up to which the best bound is looked for
_BOUNDED = 1_000_000  # and up to which there is one at all
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
    False: "costs of 1/p of the model; one of S stages takes p/S of them",
    True: "costs of one stage, whatever its size (--cost-per stage)",
}
_MILLISECONDS = "milliseconds, of each stage as it is cut"


@dataclass(frozen=True)
class Row:
    """The figures; None where the file does not let them be known. share: of the model, on the rank that holds most.
    own_costs: whether some of the costs are those that the file gives. assumed: costs that were not given, each with
    what it follows from. remarks: that in words, and what else is to be said of the costs. work: what a schedule does
    not do that others do, and the ranks that do none of it. queued: the makespan where messages wait
    for their turn under the model of communication that was named.
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
    work: tuple[str, ...] = ()
    queued: Fraction | None = None

    @property
    def fault(self) -> Diagnostic | None:
        """The first error."""
        return fault_in(self.diagnostics)

    @property
    def refused(self) -> bool:
        """Whether the schedule says itself that it is not for this size."""
        return self.fault is not None and self.fault.code is Code.REQUIRE


@dataclass(frozen=True)
class Comparison:
    """The rows, file by file, sizes in order."""

    rows: tuple[Row, ...]
    per_stage: bool
    milliseconds: bool = False
    comm: str | None = None

    @property
    def exit_status(self) -> int:
        """That of the findings; a size that a schedule refuses counts only where every one is refused."""
        every = all(row.refused for row in self.rows)
        return exit_status(found for row in self.rows if every or not row.refused for found in row.diagnostics)

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int | None = None) -> str:
        """The unit, the table, in two halves where it is wider than `width`, and under it why some rows are empty."""
        names = list(dict.fromkeys(name for row in self.rows for name in row.parameters))
        names.sort(key=lambda name: ("pvm".find(name) % 4, name))
        lead = [[row.name, *(render.size(row.parameters.get(name, "")) for name in names)] for row in self.rows]
        cells, headers = [_cells(row) for row in self.rows], [*_HEADERS]
        if self.comm is not None:
            headers.insert(1, f"makespan under\n{render.clean(self.comm)}")
            for row, figures in zip(self.rows, cells, strict=True):
                figures.insert(1, short(row.queued))

        def part(begin: int, end: int) -> str:
            rows = [[*first, *figures[begin:end]] for first, figures in zip(lead, cells, strict=True)]
            return table(("schedule", *map(render.clean, names), *headers[begin:end]), rows)

        parts, half = [part(0, len(headers))], (len(headers) + 1) // 2
        if width is not None and max(map(len, parts[0].splitlines())) > width:
            parts = [part(0, half), part(half, len(headers))]
        parts[0] = f"unit of time: {_MILLISECONDS if self.milliseconds else _UNITS[self.per_stage]}\n\n{parts[0]}"
        if notes := [*_notes(self)]:
            parts.append("\n".join(notes))
        return "\n\n".join(parts)

    def to_json(self) -> dict[str, object]:
        """The published form, see ``emit/README.md``."""
        return {
            "ok": self.exit_status == 0,
            "cost_per": "stage" if self.per_stage else "rank",
            "rows": [_row_json(row) for row in self.rows],
        }

    def points(self) -> list[Point]:
        """Bubble in per cent against peak memory, a series a schedule, of what can be compared."""
        found = []
        for row in self.rows:
            if row.bubble is not None and row.peak is not None and not self.apart(row):
                sizes = " ".join(f"{name}={render.size(value)}" for name, value in row.parameters.items())
                found.append(Point(row.peak, row.bubble * 100, row.name, sizes))
        return found

    def apart(self, row: Row) -> str:
        """Why a row has no place among the others, in words; nothing where it has one."""
        if row.makespan is None:
            return row.fault.message.removeprefix(f"{row.name} ") if row.fault else "has no timeline"
        others = not all(other.own_costs for other in self.rows)
        return "; ".join((*row.work, *["at the costs of its file"] * (row.own_costs and others)))

    def plot(self) -> str:
        """Bubble against peak memory, as SVG; under it what is left out, and why."""
        from pipesched.views.plot import plot

        x, y = "peak activations of a rank, in microbatches through 1/p of the model", "bubble, %"
        points = self.points()
        one_size = len(points) == len({point.series for point in points})
        left_out: dict[str, list[str]] = {}
        for row in self.rows:
            if why := self.apart(row):
                left_out.setdefault(why, []).append(row.name)
        notes = [f"not drawn: {', '.join(dict.fromkeys(names))}: {why}" for why, names in left_out.items()]
        notes += [f"{row.name}: {remark}" for row in self.rows if not self.apart(row) for remark in row.remarks]
        words = points[0].note.split() if points else []
        shared = [word for word in words if all(word in point.note.split() for point in points)]
        title = f"bubble against memory, {' '.join(shared)}" if shared else "bubble against memory"
        return plot(points, x=x, y=y, title=title, frontier=one_size, notes=notes)


def named(schedules: Sequence[object], *, library: bool) -> list[object]:
    """What is compared: what was named, and with `library` the rest of the built-in schedules.

    Raises:
        PipeschedError: PS225, nothing.
    """
    given = {name for name in schedules if isinstance(name, str)}
    found = [*schedules, *(name for name in built_in() if library and name not in given)]
    if not found:
        raise fail(Code.USAGE, "nothing to compare", help="name schedules, or give --all")
    return found


def compare(
    sources: Sequence[Source], sizes: Iterable[Mapping[str, Value]], options: Options, *, per_stage: bool = False
) -> Comparison:
    """Every file at every size.

    Raises:
        PipeschedError: PS208, a parameter that none of the files has.
    """
    own = list(zip(*(shared(sources, size) for size in sizes), strict=True))
    rows = []
    for source, every in zip(sources, own, strict=True):
        for parameters in _once(every):
            asked = replace(options, parameters=parameters)
            rows.append(measured(source, asked, per_stage=per_stage))
    timed = options.device is not None
    return Comparison(tuple(rows), per_stage or timed, timed, options.comm)


def _once(sizes: Iterable[dict[str, Value]]) -> Iterator[dict[str, Value]]:
    seen = set()
    for size in sizes:
        key = tuple(size.items())
        if key not in seen:
            seen.add(key)
            yield size


def _cells(row: Row) -> list[str]:
    """The figures of a row, as people read them."""
    reached = " reached" if row.bound is not None and row.bound == row.makespan else ""
    first = "refused" if row.refused else short(row.makespan)
    shares = map(ratio, (row.bubble, row.span_bubble, row.overhead))
    held = "-" if row.share is None else str(row.share)
    return [first, short(row.span), *shares, short(row.peak), short(row.messages), held, short(row.bound) + reached]


def _notes(comparison: Comparison) -> Iterator[str]:
    """What is wrong or refused; that costs differ, where files have their own; what was assumed; what is not done."""
    for row in comparison.rows:
        if row.fault is not None:
            title = " ".join([row.name, *(f"{name}={render.size(value)}" for name, value in row.parameters.items())])
            yield render.clean(f"{title}: {row.fault.code}: {row.fault.message}")
    own = [row.name for row in comparison.rows if row.own_costs]
    if own and len(own) < len(comparison.rows):
        yield render.clean(f"{', '.join(dict.fromkeys(own))}: at the costs of the file; --cost sets the same for all")
    said: dict[str, list[str]] = {}
    for row in comparison.rows:
        for remark in (*row.remarks, *row.work):
            said.setdefault(remark, []).append(row.name)
    for remark, names in said.items():
        yield render.clean(f"{', '.join(dict.fromkeys(names))}: {remark}")


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
        "messages": row.messages,
        **exact(parameters_per_rank=row.share, lower_bound=row.bound),
        "diagnostics": [render.as_json(diagnostic) for diagnostic in row.diagnostics],
    }


def measured(source: Source, options: Options, *, per_stage: bool) -> Row:
    """The figures of a file at a size; what keeps it from having them is in the row.

    Raises:
        PipeschedError: PS207, a parameter that has no default is not given.
    """
    label = source.name.removesuffix(".ps")
    try:
        loaded = load(source, options)
        costs = scaled(loaded, options, per_stage=per_stage)
    except PipeschedError as error:
        if any(found.code is Code.PARAMETER_MISSING for found in error.diagnostics):
            raise
        return Row(source.name, label, dict(options.parameters), diagnostics=error.diagnostics)
    report = examine(loaded, replace(options, costs=costs, device=None, efficiency=None)).report
    time, memory, schedule = report.parts.time, report.parts.memory, loaded.schedule
    return Row(
        source.name,
        label,
        loaded.sizes,
        costs.to_json(),
        time.makespan if time else None,
        time.span if time else None,
        max(time.idle, default=None) if time else None,
        time.bubble if time else None,
        time.span_bubble if time else None,
        overhead(time.makespan, time.work) if time else None,
        max(memory.peak, default=None) if memory else None,
        report.parts.messages,
        share(schedule.placement),
        bound(schedule, costs, options, report),
        report.diagnostics,
        options.device is None
        and bool(set(loaded.own_costs.given) - set(options.costs.given if options.costs else ())),
        costs.assumed_of(kinds := costs_used(schedule, costs)),
        (*options.counted(loaded).remarks(kinds), *_kept(schedule, costs)),
        tuple(_work(schedule, report)),
        report.parts.communication.makespan if report.parts.communication else None,
    )


def _kept(schedule: Schedule, costs: Costs) -> Iterator[str]:
    """What was assumed of the memory that an F keeps which is run again."""
    if bool((schedule.op == Op.R).any()) and "K" not in costs.given:
        yield "assumed: an F that is run again keeps K = 0 until its R"


def _work(schedule: Schedule, report: Report) -> Iterator[str]:
    """What keeps the figures of a schedule from being those of a full training step of a chain on all ranks."""
    if schedule.forward_only:
        yield "forward-only: nothing is trained"
    if frozen := schedule.placement.frozen:
        yield f"frozen {ranges(frozen)}: weights of these stages are not trained"
    if schedule.slices > 1:
        yield f"a microbatch is 1/{schedule.slices} of a sequence"
    if not schedule.placement.chain:
        yield "stages read others than the one before them"
    yield from (one.message for one in report.diagnostics if one.code is Code.IDLE_RANK)


def scaled(loaded: Loaded, options: Options, *, per_stage: bool) -> Costs:
    """The costs of one operation of a stage: those that count, times p/S; those of a device are of a stage already."""
    if per_stage or options.device is not None:
        return options.counted(loaded)
    return options.counted(loaded).scaled(Fraction(loaded.schedule.ranks, max(1, loaded.schedule.stages)))


def share(placement: Placement) -> Fraction:
    """The largest share of the model's stages that a rank holds."""
    held = (len({stage for _, stage in placement.chunks(rank)}) for rank in range(placement.ranks))
    return Fraction(max(held, default=0), max(1, placement.stages))


def bound(schedule: Schedule, costs: Costs, options: Options, report: Report) -> Fraction | None:
    """A makespan below which there is no order; None where the optimizer's problem does not cover the schedule.

    It does not where operations are missing, where there are no backwards, where stages are frozen or are no chain,
    where costs differ from microbatch to microbatch or these are slices, where forwards are run again or activations
    offloaded, or where pairs or full backwards are given another time than that of their parts.
    """
    if report.parts.time is None or any(found.code < "PS4" and found.code >= "PS3" for found in report.diagnostics):
        return None
    mixed = bool((schedule.op == Op.B).any()) and bool((schedule.op == Op.W).any())
    shorter = ("FB" in costs.given and bool(schedule.joined.any())) or (bool(costs.disagreement) and mixed)
    if shorter or costs.by_microbatch or not trains_fully(schedule) or len(schedule) > _BOUNDED:
        return None
    from pipesched.optimizer.instance import Instance

    fused = not bool((schedule.op == Op.W).any())
    caps = caps_by_rank(options.mem_cap, schedule.ranks)
    problem = Instance(schedule.placement, costs, options.release, caps, fused, "makespan").problem()
    return problem.time(_all_bounds(problem) if len(schedule) <= _SEARCHED else _plain_bounds(problem))


def _all_bounds(problem: Problem) -> int:
    """The best of the optimizer's bounds, in ticks."""
    from pipesched.optimizer.bounds.lower_bound import lower_bound

    return lower_bound(problem).value


def _plain_bounds(problem: Problem) -> int:
    """The longest path, and the work of a rank between what must come before and after it: quick at any size."""
    from pipesched.optimizer.bounds.longest_paths import paths
    from pipesched.optimizer.bounds.lower_bound import busiest

    found, work = paths(problem), problem.duration[problem.sequence]
    rank = problem.rank[problem.sequence]
    best = found.least(problem)
    for own in (np.flatnonzero(rank == r) for r in range(problem.ranks)):
        if len(own):
            best = max(best, busiest(found.head[own], work[own], found.tail[own]).value)
    return best
