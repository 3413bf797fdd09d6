"""Operations as pictures show them: chunk and kind, the phases of a rank, its activations, labels.

    phases   warm-up      until the first backward of a rank starts
             steady       from there until its last forward has ended; nothing, where all forwards come first
             cool-down    after its last forward

             rank 0   F F F F . . B F B F B B B B         warm-up | steady | cool-down
                      ------------|-------|-------

    held     an F takes at its start, everything else frees at its end, so each operation makes one step, and the steps
             of a rank are in the order of its list; without any backward an F frees at its own end what it took:

             F0 F1 .. I0 W0 F2           held
             +1 +1          -1,+1        0 1 2 2 2 2 ...

    places   a .ps file has few places and many operations, so its origin gives the places once (`Sited`); a cell of a
             CSV or a line of a stream is one operation's own. Loop bindings are found by running a rank's program
             again, so they are looked up for small schedules only

A rank without a backward is in its warm-up from beginning to end. What never runs counts for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

import numpy as np

from pipesched.analysis.timeline import Timeline
from pipesched.chart.chart import Chart
from pipesched.model.columns import Bools, Column, Ints, among, makes
from pipesched.model.lists import Sited
from pipesched.model.ops import COMPUTES, LETTERS, Result
from pipesched.model.schedule import Schedule
from pipesched.support.source import Span

Text = TypeVar("Text")
KINDS = f"{LETTERS}+"  # + is an overlap pair


def chunk_column(chart: Chart) -> Column:
    """The chunk of every operation on its rank; 0 for a stage that the placement does not put there."""
    placement, schedule = chart.schedule.placement, chart.schedule
    table = np.zeros((placement.routes, max(schedule.stages, 1)), dtype=np.int16)
    for rank in range(schedule.ranks):
        for number, key in enumerate(placement.chunks(rank)):
            table[key] = number
    if not schedule.microbatches:
        return np.zeros(len(schedule), dtype=np.int16)
    stage = np.clip(schedule.stage, 0, max(schedule.stages - 1, 0))
    route = placement.route_of[np.clip(schedule.microbatch, 0, schedule.microbatches - 1)]
    return np.asarray(table[route, stage])


def chunks(chart: Chart) -> int:
    """The most chunks of a rank, 1 if none has any."""
    return max([1, *(len(chart.schedule.placement.chunks(rank)) for rank in range(chart.schedule.ranks))])


def later(chart: Chart) -> str:
    """The chunks of a rank after its first, as a legend names them: those of the other route where each has one."""
    placement = chart.schedule.placement
    if placement.routes == 1:
        return "later chunks"
    alone = placement.routes == 2 and placement.stages <= placement.ranks and chunks(chart) == 2
    return f"route {placement.route_names[1] or 1}" if alone else "later chunks, route after route"


def most_fit(widths: Column, lengths: Column) -> bool:
    """True if a form of label fits in nine slots of ten: then it is used in all, so that all labels have one form."""
    return 10 * int(np.count_nonzero(lengths <= widths)) >= 9 * len(widths)


def widest(chart: Chart, stages: bool) -> int:
    """The characters of the longest single label."""
    schedule = chart.schedule
    digits = len(str(int(schedule.microbatch.max(initial=0))))
    return 1 + digits + (1 + len(str(int(schedule.stage.max(initial=0)))) if stages else 0)


def kinds(chart: Chart) -> Column:
    """The kind of every operation as an index of `KINDS`: both parts of a pair are +."""
    return np.where(chart.schedule.paired, KINDS.index("+"), chart.schedule.op)


@dataclass(frozen=True, eq=False)
class Phases:
    """steady, cooling: in ticks, shape (ranks,): where the warm-up and the steady phase end, -1 without a backward."""

    steady: Ints
    cooling: Ints


def phases(schedule: Schedule, times: Timeline) -> Phases:
    """The phases of every rank; O(operations)."""
    ran = times.start >= 0
    first = _per_rank(np.minimum, times.start, ran & makes(schedule.op, Result.GRADIENT), schedule)
    last = _per_rank(np.maximum, times.end, ran & makes(schedule.op, Result.ACTIVATION), schedule)
    return Phases(first, np.where(first >= 0, np.maximum(first, last), -1))


def _per_rank(pick: np.ufunc, values: Ints, chosen: Bools, schedule: Schedule) -> Ints:
    """The least or the largest of the chosen values of each rank, -1 where it has none."""
    found = np.full(schedule.ranks, np.iinfo(np.int64).max if pick is np.minimum else -1, dtype=np.int64)
    pick.at(found, schedule.rank[chosen], values[chosen])
    return np.where(np.isin(np.arange(schedule.ranks), schedule.rank[chosen]), found, -1)


def steps(chart: Chart, rank: int) -> tuple[Ints, Ints]:
    """Instants in ticks, and what is held from each on, in parts; the first is at 0, with nothing held.

    Only what runs counts. Several steps may share an instant; the last of them lasts.
    """
    part = slice(int(chart.schedule.start[rank]), int(chart.schedule.start[rank + 1]))
    ran = chart.times.start[part] >= 0
    takes = among(chart.schedule.op[part], [op for op in COMPUTES if op.takes])
    when = np.where(takes, chart.times.start[part], chart.times.end[part])[ran]
    memory = chart.analysis.memory
    held = memory.held[part][ran]
    if memory.passing:
        when = np.stack([when, chart.times.end[part][ran]], axis=1).ravel()
        held = np.stack([held, memory.kept[part][ran]], axis=1).ravel()
    nothing = np.zeros(1, dtype=np.int64)
    return np.concatenate([nothing, when]), np.concatenate([nothing, held])


def outline(when: Ints, held: Ints) -> tuple[Ints, Ints]:
    """The steps as a line to look at: of those that share an instant the last, and before it the highest if that juts.

    So an activation that is freed and one that is taken at the same time make no notch, and a peak is never lost.
    """
    first = np.flatnonzero(np.concatenate([np.ones(1, dtype=np.bool_), when[1:] > when[:-1]]))
    last = np.append(first[1:], len(when)) - 1
    most, rest = np.maximum.reduceat(held, first), held[last]
    juts = most > np.maximum(rest, np.append(0, rest[:-1]))
    instants, values = np.repeat(when[first], 2), np.stack([most, rest], axis=1).ravel()
    kept = np.stack([juts, np.ones(len(first), dtype=np.bool_)], axis=1).ravel()
    return instants[kept], values[kept]


def highest(chart: Chart, rank: int, bounds: Ints) -> Ints:
    """Most that is held in each interval between bounds, in parts; bounds: ascending, from 0 up, shape (n + 1,)."""
    when, held = steps(chart, rank)
    low = np.searchsorted(when, bounds[:-1], side="right") - 1
    high = np.maximum(np.searchsorted(when, bounds[1:], side="left"), low + 1)
    both = np.stack([low, high], axis=1).ravel()
    padded = np.concatenate([held, held[-1:]])  # so that the last interval may end behind the last step
    return np.maximum.reduceat(padded, both)[::2]


BOUND = 2_000
"""Up to so many operations the bindings of each are looked up."""

_LONGEST = 200  # a line that is longer, such as a row of a CSV, is not shown as text


@dataclass(frozen=True, eq=False)
class Places:
    """line, column: from 1, shape (operations,), 0 where there is no place. texts: lines of the source by number.

    bindings: of each operation, or none at all.
    """

    name: str
    line: Column
    column: Column
    texts: dict[int, str]
    bindings: tuple[str, ...]


def places(schedule: Schedule) -> Places:
    """The places of all operations."""
    spans, site, bound = _sites(schedule)
    at = [(0, 0) if span is None else span.source.position(span.start) for span in spans]
    table = np.array([*at, (0, 0)], dtype=np.int64)
    source = next((span.source for span in spans if span is not None), None)
    if source is None:
        return Places("", table[site, 0], table[site, 1], {}, bound)
    texts = {line: source.line(line).strip() for line in sorted({line for line, _ in at if line})}
    shown = {line: text for line, text in texts.items() if len(text) <= _LONGEST}
    return Places(source.name, table[site, 0], table[site, 1], shown, bound)


def _sites(schedule: Schedule) -> tuple[list[Span | None], Column, tuple[str, ...]]:
    """The spans, the index of each operation's own, and the bindings if they were looked up."""
    origin, count = schedule.origin, len(schedule)
    if isinstance(origin, Sited) and count > BOUND:
        site, spans = origin.sited()
        return list(spans), site, ()
    found = [origin.place(i) for i in range(count)]
    bound = tuple(place.bindings for place in found)
    return [place.span for place in found], np.arange(count), bound if any(bound) else ()


def producers(chart: Chart) -> list[tuple[int, ...]]:
    """The operations whose results each one takes, the nearest first."""
    dependencies = chart.analysis.dependencies
    found: list[tuple[int, ...]] = [(x,) if x >= 0 else () for x in dependencies.producer.tolist()]
    further = dependencies.further
    for producer, consumer in zip(further.producer.tolist(), further.consumer.tolist(), strict=True):
        found[consumer] += (producer,)
    return found


def held(chart: Chart, written: Callable[[Fraction], Text]) -> list[Text]:
    """Activations of a rank after each operation, and during it for an F; each value is written once."""
    return amounts(chart, chart.analysis.memory.held, written)


def amounts(chart: Chart, column: Ints, written: Callable[[Fraction], Text]) -> list[Text]:
    """A column in parts, in the unit."""
    values = column.tolist()
    known = {value: written(value * chart.analysis.memory.part) for value in set(values)}
    return [known[value] for value in values]
