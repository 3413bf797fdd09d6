"""Compares two orders: lists their differences, and the figures of both at the requested costs.

    rank 1: W1.3 moved from step 14 to 11, before F1.5
    rank 2: only in a.ps: B2.0

The differences are the fewest moves of operations that turn each rank's order into the other's, operations in only one
of the orders, overlap pairs, batches of messages, placement and sizes. Both files get the requested costs.

Operations and instructions are represented by numbers; equal entries have equal numbers. If both files name their
messages, the messages are also compared, since a moved message can deadlock; otherwise only the operations are
compared. A B of one order and the I of the same stage and microbatch in the other get the same number, so that split
backwards are not reported as different operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar

import numpy as np

from pipesched.compile import examined
from pipesched.examine import Examination, Options
from pipesched.formats.numbered import brackets
from pipesched.insight.diff_report import Alone, Difference, Move
from pipesched.insight.likeness import Moves, moves
from pipesched.insight.shared_sizes import shared
from pipesched.model.columns import Bools, Column, Ints
from pipesched.model.numbers import ranges
from pipesched.model.ops import Instruction, Op
from pipesched.model.placement import Placement
from pipesched.model.schedule import Program, Schedule
from pipesched.support.record import Record
from pipesched.support.source import Source
from pipesched.views.tables import grouped


def diff(a: Source, b: Source, options: Options) -> Difference:
    """Compare two files; each gets the sizes that it has as parameters.

    Raises:
        PipeschedError: an error in one of the files; PS208 for a size that neither file has.
    """
    own = zip((a, b), shared((a, b), options.parameters), strict=True)
    return differ(*(examined(file, replace(options, parameters=x)) for file, x in own))


def differ(a: Examination, b: Examination) -> Difference:
    """Compare order a with order b, in O(n log n) for n moved operations."""
    one, two = listings(a, b)
    moved: list[Move] = []
    only: tuple[list[Alone], list[Alone]] = ([], [])
    split: tuple[list[Alone], list[Alone]] = ([], [])
    for rank in range(max(one.order.ranks, two.order.ranks)):
        (low_a, high_a), (low_b, high_b) = one.bounds(rank), two.bounds(rank)
        found = moves(one.key[low_a:high_a], two.key[low_b:high_b], ~two.weight[low_b:high_b])
        moved += _moves(rank, found, one, two)
        for side, listing, positions in ((0, one, found.gone), (1, two, found.new)):
            low, high = listing.bounds(rank)
            only[side].extend(_alone(rank, [i for i in positions if not listing.half[low + i]], listing))
            split[side].extend(_alone(rank, np.flatnonzero(listing.split[low:high]).tolist(), listing))
    facts = tuple(_facts(a.loaded.schedule, b.loaded.schedule))
    messages = a.loaded.program is not None and b.loaded.program is not None
    pairs = _as_one(a.loaded.schedule, b.loaded.schedule, _overlaps)
    if a.loaded.program is not None and b.loaded.program is not None:
        batches = _as_one(a.loaded.program, b.loaded.program, _batches)
        pairs = pairs[0] + batches[0], pairs[1] + batches[1]
    (only_a, only_b), (split_a, split_b) = map(tuple, only), map(tuple, split)
    return Difference(
        a,
        b,
        facts,
        tuple(moved),
        only_a,
        only_b=only_b,
        pairs_a=pairs[0],
        pairs_b=pairs[1],
        split_a=split_a,
        split_b=split_b,
        messages=messages,
    )


def _moves(rank: int, found: Moves, one: Listing, two: Listing) -> Iterator[Move]:
    """Yield runs of moved neighbours, each with the next operation that was not moved."""
    (low_a, _), (low_b, high_b) = one.bounds(rank), two.bounds(rank)
    stays = np.setdiff1d(np.arange(high_b - low_b + 1), [*(j for _, j in found.moved), *found.new])
    runs: list[list[tuple[int, int]]] = []
    for i, j in found.moved:
        if runs and runs[-1][-1] == (i - 1, j - 1):
            runs[-1].append((i, j))
        else:
            runs.append([(i, j)])
    for run in runs:
        after = int(stays[np.searchsorted(stays, run[-1][1] + 1)])
        before = two.name(low_b + after) if low_b + after < high_b else None
        names = tuple(one.name(low_a + i) for i, _ in run)
        yield Move(rank, names, run[0][0] + 1, run[0][1] + 1, before)


def _alone(rank: int, positions: Sequence[int], listing: Listing) -> Iterator[Alone]:
    if positions:
        low = listing.bounds(rank)[0]
        yield Alone(rank, tuple(listing.name(low + i) for i in positions), tuple(i + 1 for i in positions))


Order = TypeVar("Order", Schedule, Program)
Named: TypeAlias = dict[tuple[int, str], int]  # rank and name of a pair or batch, and the index of its first operation


def _as_one(a: Order, b: Order, found: Callable[[Order], Named]) -> tuple[tuple[Alone, ...], tuple[Alone, ...]]:
    """Return the overlap pairs or batches that only one of the orders has."""
    one, two = found(a), found(b)
    return _missing(a, one, two), _missing(b, two, one)


def _overlaps(schedule: Schedule) -> Named:
    second: Ints = np.flatnonzero(schedule.joined)
    return {(int(schedule.rank[i]), schedule.slot(i)): i - 1 for i in second.tolist()}


def _batches(program: Program) -> Named:
    """Map each batch of several messages to its first index; a single message is not a batch."""
    begins, ends = (np.flatnonzero(x).tolist() for x in brackets(program.group))
    return {
        (int(program.rank[i]), f"( {' '.join(str(program[x]) for x in range(i, last + 1))} )"): i
        for i, last in zip(begins, ends, strict=True)
        if last > i
    }


def _missing(order: Schedule | Program, mine: Named, other: Named) -> tuple[Alone, ...]:
    missing = ((rank, (name, order.step(at))) for (rank, name), at in mine.items() if (rank, name) not in other)
    return tuple(Alone(rank, *zip(*found, strict=True)) for rank, found in grouped(missing).items())


def _facts(a: Schedule, b: Schedule) -> Iterator[str]:
    """Yield the differing sizes, then the stages on different ranks."""
    for name in ("ranks", "stages", "microbatches", "slices"):
        if getattr(a, name) != getattr(b, name):
            yield f"{getattr(a, name)} {name} in the first order, {getattr(b, name)} in the second"
    if _steps(a) != _steps(b):
        yield f"first order: {_stepped(a)}; second order: {_stepped(b)}"
    one, two = a.placement, b.placement
    if one.frozen != two.frozen:
        before, after = (ranges(x.frozen) if x.frozen else "none" for x in (one, two))
        yield f"frozen stages: {before} in the first order, {after} in the second"
    if one.rank_of.shape != two.rank_of.shape:
        if one.routes != two.routes:
            yield f"{one.routes} routes in the first order, {two.routes} in the second"
        return
    yield from _placements(one, two)


def _steps(schedule: Schedule) -> tuple[object, ...]:
    steps = schedule.steps
    return () if steps is None else (steps.rule, steps.stage.tolist(), steps.rank.tolist(), steps.at.tolist())


def _stepped(schedule: Schedule) -> str:
    steps = schedule.steps
    rule = f", versions {steps.rule}" if steps and steps.rule else ""
    where = (
        "" if steps is None else f" inside, the first on rank {int(steps.rank[0])} after {int(steps.at[0])} operations"
    )
    return f"{0 if steps is None else len(steps)} STEPs{where}{rule}"


def _placements(one: Placement, two: Placement) -> Iterator[str]:
    """Yield the stages on different ranks, the stages that read different stages, and the microbatches on different
    routes.
    """
    for route, stage in np.argwhere(one.rank_of != two.rank_of).tolist():
        on = f" of route {route}" if one.routes > 1 else ""
        yield (
            f"stage {stage}{on}: rank {one.rank_of[route, stage]} in the first order, "
            f"rank {two.rank_of[route, stage]} in the second"
        )
    for stage in sorted({*one.reads, *two.reads}):
        if one.read(stage) != two.read(stage):
            before, after = (", ".join(map(str, x.read(stage))) or "none" for x in (one, two))
            yield f"stage {stage} reads {before} in the first order, {after} in the second"
    if one.routes > 1 and len(one.route_of) == len(two.route_of):
        for i in np.flatnonzero(one.route_of != two.route_of).tolist():
            yield f"microbatch {i}: route {one.route_of[i]} in the first order, {two.route_of[i]} in the second"


_COMPUTE = ("op", "stage", "microbatch")


class Listing(Record):
    """The entries of an order. key: the number that represents each entry, shape (entries,). split: whether each entry
    is a B that the other order splits into I and W. half: whether each entry is a W whose B is in the other order.
    """

    order: Schedule | Program
    key: Ints
    split: Bools
    half: Bools

    @property
    def weight(self) -> Bools:
        """A mask of the entries that are W."""
        return np.asarray(self.order.op == Op.W)

    def bounds(self, rank: int) -> tuple[int, int]:
        """Return the range of a rank's entries; empty if the rank does not exist."""
        start = self.order.start
        return (int(start[rank]), int(start[rank + 1])) if rank < self.order.ranks else (0, 0)

    def name(self, index: int) -> str:
        """Return the name of an entry."""
        found = self.order[index]
        if isinstance(found, Instruction) and found.op.compute:
            return f"{found.op.name}{found.stage}.{found.microbatch}"
        return str(found)


def listings(a: Examination, b: Examination) -> tuple[Listing, Listing]:
    """Return both orders, with equal numbers for entries that are equal in all columns."""
    one, two = a.loaded.program, b.loaded.program
    orders = (a.loaded.schedule, b.loaded.schedule) if one is None or two is None else (one, two)
    names = _COMPUTE if one is None or two is None else (*_COMPUTE, "peer", "communicator")
    at = _packed([_columns(x, _COMPUTE[1:]) for x in orders])
    split = [_split(orders[i], at[i], orders[1 - i], at[1 - i]) for i in (0, 1)]
    half = [np.asarray((orders[i].op == Op.W) & np.isin(at[i], at[1 - i][split[1 - i]])) for i in (0, 1)]
    columns = [_columns(x, names) for x in orders]
    for mine, as_input in zip(columns, split, strict=True):
        mine[0] = np.where(as_input, int(Op.I), mine[0])
    first, second = map(Listing, orders, _packed(columns), split, half)
    return first, second


def _split(mine: Schedule | Program, at: Ints, other: Schedule | Program, there: Ints) -> Bools:
    """Mark the entries of `mine` that are a B where the other order has an I. at, there: for each entry of `mine` and
    of `other`, the number of its stage and microbatch.
    """
    halves = np.setdiff1d(there[other.op == Op.I], there[other.op == Op.B])
    return np.asarray((mine.op == Op.B) & np.isin(at, halves) & ~np.isin(at, at[mine.op == Op.I]))


def _columns(order: Schedule | Program, names: tuple[str, ...]) -> list[Column]:
    return [getattr(order, name).astype(np.int64) for name in names]


def _packed(orders: list[list[Column]]) -> list[Ints]:
    """Merge the columns of each order into one number per entry; numbers are equal if all columns are equal."""
    keys: list[Ints] = [np.zeros(len(columns[0]), dtype=np.int64) for columns in orders]
    for parts in zip(*orders, strict=True):
        low = min(int(part.min(initial=0)) for part in parts)
        spread = max(int(part.max(initial=0)) for part in parts) - low + 1
        keys = [key * spread + (part - low) for key, part in zip(keys, parts, strict=True)]
    return keys
