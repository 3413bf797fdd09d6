"""Derives the placement, and the other end of every message, from the rows of a file.

A file of rows does not contain a placement. The rank of (stage, microbatch) is the row that contains it, so each row
fills entries of the table `rank[stage, microbatch]`, whose equal columns are one route:

    rank 0:  F0.0 F0.1 F1.2        stage 0   0 0 1
    rank 1:  F1.0 F1.1 F0.2        stage 1   1 1 0     two routes: microbatches 0, 1 go down, 2 goes up

A message between stages s and s + 1 is sent from one row to the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import TypeAlias

import numpy as np

from pipesched.diagnostics import Code, Diagnostic, Label, PipeschedError, fail
from pipesched.model.columns import Bools, Column, Ints, among, computes, makes, rank_column
from pipesched.model.lists import Origin
from pipesched.model.ops import RECEIVES, SENDS, Op, Result
from pipesched.model.placement import Placement
from pipesched.model.schedule import Program, Schedule
from pipesched.orders.limits import LARGEST, SHOWN, SPARE, other_stage
from pipesched.orders.words import TextOrigin
from pipesched.support.record import Record
from pipesched.support.source import Source

AnyOrder: TypeAlias = Schedule | Program

ROUTES = 64
"""Limit on the routes with which a microbatch is compared if some of its ranks are unknown."""


def number(digits: str) -> int:
    """Return the value of digits; if it is above LARGEST, some value above LARGEST."""
    return int(digits.lstrip("0")[: len(str(LARGEST)) + 1] or 0)


@dataclass(frozen=True, slots=True)
class Bad:
    """The reason why a word or a cell is refused."""

    reason: str
    help: str
    code: Code = Code.CELL


def short(text: str, limit: int = 40) -> str:
    """Return text for a message, truncated at the limit."""
    return text if len(text) <= limit else f"{text[:limit]}…"


class Rows(Record):
    """The operations or instructions of all rows, as columns; -1 if a column has no meaning."""

    op: Column
    stage: Column
    microbatch: Column
    second: Bools
    start: Ints
    origin: Origin

    @cached_property
    def rank(self) -> Column:
        return rank_column(self.start)

    @cached_property
    def messages(self) -> Bools:
        return among(self.op, (*SENDS, *RECEIVES))

    @cached_property
    def compute_only(self) -> bool:
        return bool(np.all(computes(self.op)))

    @cached_property
    def placed(self) -> Ints:
        """The entries that determine the rank of a stage, in order of precedence.

        Forwards come first, then other compute operations, then messages; each in the order of the file.
        """
        forward, compute = makes(self.op, Result.ACTIVATION), computes(self.op)
        return np.concatenate([np.flatnonzero(x) for x in (forward, compute & ~forward, self.messages)])

    def order(self, file: str, placement: Placement, peer: Column, group: Column, communicator: Column) -> AnyOrder:
        """Return a schedule, or a program if there are instructions other than compute operations."""
        name = PurePath(file).stem
        lists = {name: getattr(self, name) for name in ("op", "stage", "microbatch", "second", "start", "origin")}
        if self.compute_only:
            return Schedule(name, {}, placement, **lists)
        return Program(name, placement, peer=peer, group=group, communicator=communicator, **lists)


def rows_of(
    source: Source, ranks: Sequence[Column], pattern: re.Pattern[str], within: Callable[[int], tuple[int, int]]
) -> tuple[Rows, Sequence[Column]]:
    """Return the operations of all ranks as `Rows`, and their other columns."""
    start = np.cumsum([0] + [each.shape[1] for each in ranks], dtype=np.int64)
    op, place, stage, microbatch, *others = np.concatenate(ranks, axis=1)
    origin = TextOrigin(source, start, pattern, within)
    return Rows(op.astype(np.int8), stage, microbatch, place > 0, start, origin), others


def rank_table(shape: tuple[int, int], claims: Iterable[tuple[Column, Column, Column]]) -> Column:
    """Return rank[stage, microbatch] as int32, -1 if unknown. claims: stages, microbatches and ranks; the first claim
    on an entry counts.
    """
    table = np.full(shape[0] * shape[1], -1, dtype=np.int32)
    for stage, microbatch, rank in claims:
        inside = (stage >= 0) & (stage < shape[0]) & (microbatch >= 0) & (microbatch < shape[1])
        key, rank = stage[inside].astype(np.int64) * shape[1] + microbatch[inside], rank[inside]
        new = table[key] < 0
        table[key[new][::-1]] = rank[new][::-1]  # for repeated indices the last one is kept
    return table.reshape(shape)


def place(table: Column, ranks: int) -> Placement:
    """Return the placement: microbatches with equal columns share a route; routes are sorted by first microbatch."""
    route_of = np.zeros(table.shape[1], dtype=np.int32)
    if not table.size or bool(np.all(table == table[:, :1])):
        return Placement(np.ascontiguousarray(table[:, :1].T), route_of, ranks, ("",))
    distinct, first, inverse = np.unique(table, axis=1, return_index=True, return_inverse=True)
    merged, into = _merge(distinct.T, np.argsort(first))
    route_of = into[inverse.reshape(-1)].astype(np.int32)
    return Placement(merged.astype(np.int32), route_of, ranks, _names(merged))


def _merge(columns: Column, order: Ints) -> tuple[Column, Ints]:
    """Merge a column with holes into the first route that does not contradict it; complete columns are not merged.

    Only the first ROUTES routes are compared, so that even meaningless files take linear time.
    """
    routes: list[Column] = []
    into = np.zeros(len(columns), dtype=np.int64)
    complete = np.all(columns >= 0, axis=1)
    for i in order[np.argsort(~complete[order], kind="stable")].tolist():
        column = columns[i]
        fits = (k for k, x in enumerate(routes[:ROUTES]) if np.all((x == column) | (x < 0) | (column < 0)))
        home = len(routes) if complete[i] else next(fits, len(routes))
        routes[home : home + 1] = [np.maximum(routes[home], column) if home < len(routes) else column]
        into[i] = home
    return np.array(routes), into


def _names(routes: Column) -> tuple[str, ...]:
    """Return ``down`` and ``up`` for the two routes of DualPipe and Chimera, else ``route0``, ``route1``, …."""
    slopes = np.diff(routes)
    if len(routes) == 2 and bool(np.all(slopes[0] > 0) and np.all(slopes[1] < 0)):
        return ("down", "up")
    return tuple(f"route{i}" for i in range(len(routes))) if len(routes) > 1 else ("",)


def implied(rows: Rows, file: str, given: Mapping[str, object], placement: Sequence[int] | None) -> AnyOrder:
    """Return the order of a file; its rows imply the placement and the other end of every message.

    Raises:
        PipeschedError: PS104, PS304, PS803.
    """
    table = table_of(rows)
    peer = np.full(len(rows.op), -1, dtype=np.int32)  # unchanged if no row runs that stage
    at = np.flatnonzero(rows.messages)
    stage, microbatch = other_stage(rows.op[at], rows.stage[at]), rows.microbatch[at]
    inside = (stage >= 0) & (stage < table.shape[0]) & (microbatch < table.shape[1])
    peer[at[inside]] = table[stage[inside], microbatch[inside]]
    none = np.full(len(rows.op), -1, dtype=np.int32)
    order = rows.order(file, place(table, len(rows.start) - 1), peer, none, 0 * none)
    require_agreement(file, order, given, placement)
    require_no_gap(rows)
    return order


# Checks of a file against its own size and against given sizes. Stages and microbatches are counted, not declared, so a
# mistake in one number would make every later table very large: it is found before any table is made.


READ = 20
"""The number of bad words or cells after which reading stops."""

SIZES = {"p": ("rank", "ranks"), "stages": ("stage", "stages"), "m": ("microbatch", "microbatches")}
"""For each option, the singular and plural names of what it counts."""


def table_of(rows: Rows) -> Column:
    """Return the table rank[stage, microbatch], after checking its size."""
    placed = rows.placed
    if not len(placed):
        raise fail(
            Code.EMPTY,
            "the file contains neither compute operations nor messages",
            there(rows.origin, 0, "none of the operations belongs to a stage"),
            help="write one row per rank and one cell per action, as in 0F0,0F1,0B0,0B1",
        )
    stage, microbatch = rows.stage[placed], rows.microbatch[placed]
    shape = int(stage.max()) + 1, int(microbatch.max()) + 1
    require_dense(rows, shape)
    outside = np.flatnonzero(rows.stage >= shape[0])[:SHOWN].tolist()
    if outside:
        runs = f"the file runs only stages 0 to {shape[0] - 1}"
        raise PipeschedError(
            Diagnostic(
                Code.OUT_OF_RANGE,
                f"{Op(int(rows.op[i])).name} of stage {rows.stage[i]}, but {runs}",
                (there(rows.origin, i, f"rank {rows.rank[i]}: no row computes stage {rows.stage[i]}"),),
            )
            for i in outside
        )
    return rank_table(shape, [(stage, microbatch, rows.rank[placed])])


def require_dense(rows: Rows, shape: tuple[int, int]) -> None:
    """Refuse numbers of stages and microbatches for which the file has too few operations."""
    if shape[0] * shape[1] <= SPARE + 4 * len(rows.op):
        return
    last = int(rows.stage.max()), int(rows.microbatch.max())
    raise fail(
        Code.OUT_OF_RANGE,
        f"{shape[0]:,} stages and {shape[1]:,} microbatches need {shape[0] * shape[1]:,} forwards, "
        f"but the file has {len(rows.op):,} operations",
        there(rows.origin, first(rows.stage, last[0]), f"stage {last[0]}"),
        there(rows.origin, first(rows.microbatch, last[1]), f"microbatch {last[1]}"),
        help="stages and microbatches count from 0 without gaps",
    )


def there(origin: Origin, index: int, text: str) -> Label:
    """Return a label at an operation, with the program line that made it."""
    place = origin.place(index)
    return Label(place.span, f"{text} ({place.bindings})" if place.bindings else text)


def first(column: Column, value: int) -> int:
    """Return the index of the first operation with that value in a column."""
    return int(np.argmax(column == value))


def require_agreement(
    name: str, order: AnyOrder, given: Mapping[str, object], placement: Sequence[int] | None = None
) -> None:
    """Raise PipeschedError (PS803) if the order's sizes or placement differ from the given ones."""
    found = [*_other_sizes(name, order, given), *([] if placement is None else _misplaced(order, placement))]
    if found:
        raise PipeschedError(found)


def _other_sizes(name: str, order: AnyOrder, given: Mapping[str, object]) -> Iterator[Diagnostic]:
    """Yield a finding for each option whose size differs from the order's."""
    for option, (what, many) in SIZES.items():
        here = getattr(order, many)
        if given.get(option) not in (None, here):
            last = np.flatnonzero(getattr(order, what) == here - 1)[:1].tolist()
            yield Diagnostic(
                Code.FILE_DISAGREES,
                f"{name} has {here} {many}, but {given[option]} were given",
                tuple(there(order.origin, index, f"its last {what} is {here - 1}") for index in last),
                (),
                f"leave out --{option}, or give --{option} {here}",
            )


def _misplaced(order: AnyOrder, placement: Sequence[int]) -> Iterator[Diagnostic]:
    """Yield a finding at the first operation of each stage that is not on the given rank."""
    if len(placement) != order.stages:
        yield Diagnostic(
            Code.FILE_DISAGREES,
            f"the file has {order.stages} stages, but the placement covers {len(placement)}",
            (there(order.origin, first(order.stage, order.stages - 1), f"its last stage is {order.stages - 1}"),),
        )
        return
    wrong = np.flatnonzero(computes(order.op) & (np.array(placement)[order.stage] != order.rank))
    for index in wrong[np.unique(order.stage[wrong], return_index=True)[1]][:SHOWN].tolist():
        stage, rank = int(order.stage[index]), int(order.rank[index])
        yield Diagnostic(
            Code.FILE_DISAGREES,
            f"stage {stage} is on rank {rank} in the file, but rank {placement[stage]} was given",
            (there(order.origin, index, f"row {rank + 1} is rank {rank}"),),
        )


def require_no_gap(rows: Rows) -> None:
    """Raise PipeschedError (PS304) if a number is missing although a larger one occurs, which is often a typo."""
    found = []
    for (what, many), column in ((SIZES["stages"], rows.stage), (SIZES["m"], rows.microbatch)):
        present = np.unique(column[rows.placed])
        for jump in np.flatnonzero(np.diff(present, prepend=-1) > 1)[:1].tolist():
            before, after = int(present[jump - 1]) if jump else -1, int(present[jump])
            missing = f"{what} {before + 1} is" if after - before == 2 else f"{many} {before + 1} to {after - 1} are"
            message = f"{what} {after} is in the file, but {missing} not"
            here = there(rows.origin, first(column, after), f"the first cell of {what} {after}")
            help = f"{many} count from 0 without gaps"
            found.append(Diagnostic(Code.OUT_OF_RANGE, message, (here,), (), help))
    if found:
        raise PipeschedError(found)
