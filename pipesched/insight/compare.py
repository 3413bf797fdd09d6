"""Compares schedules and sizes in a table.

A parameter applies to the files that have it: `--v 2` applies only to the interleaved schedules; the others run once
without it. If a schedule refuses a size, its row shows the reason.

Costs are for 1/p of the model, so an operation of one of S stages takes p/S of them. On request, costs are for one
stage, whatever its size. Messages cost the same in both cases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from pipesched import render
from pipesched.analysis.timeline import costs_used
from pipesched.check.rows import CheckCode
from pipesched.common.side_by_side import settled
from pipesched.compile import examine, load
from pipesched.diagnostics import Code, PipeschedError, fail
from pipesched.engines.costs import Exposed
from pipesched.engines.parts import Parts
from pipesched.engines.traffic import RATIOS, Traffic, makespans
from pipesched.examine import Examination, Options
from pipesched.formats.readers import Loaded
from pipesched.insight.compare_report import Comparison, Row
from pipesched.insight.jitter import Jitter
from pipesched.insight.shared_sizes import shared
from pipesched.library.assets import built_in
from pipesched.model.costs import Costs
from pipesched.model.numbers import Value, ranges
from pipesched.model.ops import Op
from pipesched.model.placement import Placement
from pipesched.model.release import caps_by_rank
from pipesched.model.schedule import Schedule
from pipesched.model.units import MILLISECONDS, NO_UNIT
from pipesched.planning.executors import Workers, divided
from pipesched.planning.footprint_report import InBytes
from pipesched.planning.sweeps import without
from pipesched.planning.workload import Workload
from pipesched.report.report import Report
from pipesched.support.source import Source
from pipesched.versions.report import VersionPart
from pipesched.views.palette import overhead
from pipesched.views.plot import Point

if TYPE_CHECKING:
    from pipesched.optimizer.solve.problem import Problem

_SEARCHED = 3_000  # most operations for which the best bound is computed
_BOUNDED = 1_000_000  # most operations for which any bound is computed


def named(schedules: Sequence[object], *, library: bool) -> list[object]:
    """Return the targets to compare: the named targets and, with `library`, all other built-in schedules.

    Raises:
        PipeschedError: PS225 if no target is named.
    """
    given = {name for name in schedules if isinstance(name, str)}
    found = [*schedules, *(name for name in built_in() if library and name not in given)]
    if not found:
        raise fail(Code.USAGE, "nothing to compare", help="name schedules, or give --all")
    return found


def compare(
    sources: Sequence[Source], sizes: Iterable[Mapping[str, Value]], options: Options, *, per_stage: bool = False
) -> Comparison:
    """Compare every file at every size.

    Raises:
        PipeschedError: PS208 if none of the files has one of the parameters.
    """
    own = list(zip(*(shared(sources, size) for size in sizes), strict=True))
    sized = [
        (source, replace(without(options), parameters=size))
        for source, every in zip(sources, own, strict=True)
        for size in _once(every)
    ]
    rows = divided(partial(_rows, per_stage), sized, options.of(Workers))
    timed = _by_stage(options)
    growing = [*_growing(sized)] if options.of(Traffic).traffic else []
    given = NO_UNIT if options.costs is None else options.costs.unit
    unit = options.of(Parts).unit or given if options.of(Workload).device is None else MILLISECONDS
    return Comparison(tuple(rows), per_stage or timed, unit, options.comm, timed, tuple(growing))


def _growing(sized: Sequence[tuple[Source, Options]]) -> Iterator[Point]:
    """Yield the makespan of each file at its size, for each ratio of communication to compute."""
    several = Counter(source.name for source, _ in sized)
    for source, options in sized:
        loaded = load(source, options)
        sizes = " ".join(f"{name}={render.size(value)}" for name, value in loaded.sizes.items())
        series = " ".join([source.name.removesuffix(".ps"), *([sizes] if several[source.name] > 1 else [])])
        for ratio, makespan in makespans(loaded, options):
            yield Point(ratio, makespan, series, sizes if ratio == RATIOS[-1] else "")


def _once(sizes: Iterable[dict[str, Value]]) -> Iterator[dict[str, Value]]:
    seen = set()
    for size in sizes:
        key = tuple(size.items())
        if key not in seen:
            seen.add(key)
            yield size


Asked: TypeAlias = tuple[Source, Options, Examination]


def _rows(per_stage: bool, sized: Sequence[tuple[Source, Options]]) -> list[Row]:
    """Return the row of each file at its size."""
    asked = (_asked(source, options, per_stage=per_stage) for source, options in sized)
    return [
        one if isinstance(one, Row) else measured(*one)
        for one in settled(asked, lambda asked: None if isinstance(asked, Row) else asked[2])
    ]


def _asked(source: Source, options: Options, *, per_stage: bool) -> Row | Asked:
    """Return the examination of a file at a size, with comparable costs, or an empty row with the reason.

    Raises:
        PipeschedError: PS207 if a parameter without a default is not given.
    """
    try:
        loaded = load(source, options)
        options = options.beside(loaded)
        costs = scaled(loaded, options, per_stage=per_stage)
    except PipeschedError as error:
        if any(found.code is Code.PARAMETER_MISSING for found in error.diagnostics):
            raise
        return Row(
            source.name, source.name.removesuffix(".ps"), dict(options.parameters), diagnostics=error.diagnostics
        )
    untimed = replace(options.of(Workload), device=None, efficiency=None)
    return source, options, examine(loaded, replace(options.owning(untimed), costs=costs))


def measured(source: Source, options: Options, made: Examination) -> Row:
    """Return the row of a file at a size: its figures, or the reason why it has none."""
    report, loaded, costs = made.report, made.loaded, made.options.costs or Costs()
    time, memory, schedule = report.parts.time, report.parts.memory, loaded.schedule
    figures: dict[str, Fraction | None] = {}
    if time:
        figures = {name: getattr(time, name) for name in ("makespan", "span", "bubble", "span_bubble")}
        figures |= {"idle": max(time.idle, default=None), "overhead": overhead(time.makespan, time.work)}
    given = options.costs.given if options.costs else {}
    kinds, own, used, kept = (
        costs_used(schedule, costs),
        options.counted(loaded),
        report.parts.of(InBytes),
        [*_kept(schedule, costs)],
    )
    return Row(
        source.name,
        source.name.removesuffix(".ps"),
        loaded.sizes,
        costs.to_json(),
        **figures,
        peak=max(memory.peak, default=None) if memory else None,
        messages=report.parts.messages,
        share=share(schedule.placement),
        bound=bound(schedule, costs, options, report),
        diagnostics=report.diagnostics,
        own_costs=not _by_stage(options) and bool({*loaded.own_costs.given} - {*given}),
        assumed=costs.assumed_of(kinds),
        remarks=(*own.remarks(kinds), *(f"assumed: {said}" for said in kept)),
        rests_on=((own.note,) if own.note else ()) + (*own.guesses(kinds), *kept, *(used.assumed if used else ())),
        doubts=tuple(own.doubts(kinds)),
        work=tuple(_work(schedule, report)),
        queued=report.parts.communication.makespan if report.parts.communication else None,
        jitter=report.parts.of(Jitter),
        exposed=report.parts.of(Exposed),
        versions=max(versions.alive, default=None) if (versions := report.parts.of(VersionPart)) else None,
        bytes=used.total if used else (),
    )


def _kept(schedule: Schedule, costs: Costs) -> Iterator[str]:
    """Yield the assumption about the memory that a recomputed F keeps."""
    if bool((schedule.op == Op.R).any()) and "K" not in costs.given:
        yield "a recomputed F keeps K = 0 until its R"


def _work(schedule: Schedule, report: Report) -> Iterator[str]:
    """Yield the reasons why a schedule's figures do not describe a full training step of a chain of stages."""
    if schedule.forward_only:
        yield "forward-only: it does not train"
    if frozen := schedule.placement.frozen:
        yield f"frozen stages: {ranges(frozen)} (their weights are not trained)"
    if schedule.slices > 1:
        yield f"a microbatch is 1/{schedule.slices} of a sequence"
    if not schedule.placement.chain:
        yield "some stages read a stage other than the previous one"
    if schedule.steps is not None:
        yield "STEPs inside the order: it trains several batches, with older weights"
    yield from (one.message for one in report.diagnostics if one.code is CheckCode.IDLE_RANK)


def scaled(loaded: Loaded, options: Options, *, per_stage: bool) -> Costs:
    """Return the costs of a stage's operations: the given costs times p/S, or the costs from a device or from parts."""
    if per_stage or _by_stage(options):
        return options.counted(loaded)
    return options.counted(loaded).scaled(Fraction(loaded.schedule.ranks, max(1, loaded.schedule.stages)))


def _by_stage(options: Options) -> bool:
    """Return True if the costs are derived from the contents of a stage, so that they are already per stage."""
    return options.of(Workload).device is not None or bool(options.of(Parts).given)


def share(placement: Placement) -> Fraction:
    """Return the largest share of the model's stages that a rank holds."""
    held = (len({stage for _, stage in placement.chunks(rank)}) for rank in range(placement.ranks))
    return Fraction(max(held, default=0), max(1, placement.stages))


def bound(schedule: Schedule, costs: Costs, options: Options, report: Report) -> Fraction | None:
    """Return a lower bound on the makespan of every order, or None if the optimizer does not support the schedule.

    There is no bound if operations or all backwards are missing, if stages are frozen or not a chain, if costs differ
    between microbatches, if microbatches are slices, if forwards are recomputed or activations offloaded, or if a pair
    or a full backward does not take the time of its parts, as with parts on several engines.
    """
    if report.parts.time is None or any(found.code < "PS4" and found.code >= "PS3" for found in report.diagnostics):
        return None
    mixed = bool((schedule.op == Op.B).any()) and bool((schedule.op == Op.W).any())
    shorter = ("FB" in costs.given and bool(schedule.joined.any())) or (bool(costs.disagreement) and mixed)
    if shorter or len(schedule) > _BOUNDED or options.of(Parts).given:
        return None
    from pipesched.optimizer.solve.bounds.lower_bound import lower_bound
    from pipesched.optimizer.solve.instance import BOUNDED, Instance

    if not BOUNDED.takes(schedule, costs):
        return None

    fused = not bool((schedule.op == Op.W).any())
    caps = caps_by_rank(options.mem_cap, schedule.ranks)
    problem = Instance(schedule.placement, costs, options.release, caps, fused, "makespan").problem()
    return problem.time(lower_bound(problem).value if len(schedule) <= _SEARCHED else _plain_bounds(problem))


def _plain_bounds(problem: Problem) -> int:
    """Return a lower bound from the longest path and from a rank's work between its head and its tail; fast at any
    size.
    """
    from pipesched.optimizer.solve.bounds.longest_paths import paths
    from pipesched.optimizer.solve.bounds.lower_bound import busiest

    found, work = paths(problem), problem.duration[problem.sequence]
    rank = problem.rank[problem.sequence]
    best = found.least(problem)
    for own in (np.flatnonzero(rank == r) for r in range(problem.ranks)):
        if len(own):
            best = max(best, busiest(found.head[own], work[own], found.tail[own]).value)
    return best
