"""Converts the output of `lanes` to columns: each operation of all ranks gets its stage and microbatch.

If a kind counts its own operations, its n-th operation in a chunk has the n-th microbatch. If a kind follows another (W
an I, R and O an F, L an O), it has the microbatch of the other kind's n-th operation. `drain W` stands for all W that
are missing at that point. `operations` does the same one operation at a time; a program whose order depends on more
than such counts is `Unsuited`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import TypeAlias

import numpy as np

from pipesched.language import ast
from pipesched.language.execution import Names
from pipesched.language.lanes import Batch, Expansion, Lanes, Unsuited, Values
from pipesched.language.typecheck import Checked
from pipesched.model.columns import Bools, Column, Ints, among, fresh, small
from pipesched.model.ops import COMPUTES, OLDEST, RESTORES, Op, Result
from pipesched.model.placement import Placement
from pipesched.model.slices import mirrored
from pipesched.support.record import Record

AT_ONCE = 1 << 16  # operations that are written side by side, approximately
NONE = -1

Expanded: TypeAlias = tuple[Column, Ints, Bools, Ints]
"""Sites, keys (stage * microbatches + microbatch) and overlap flags of all ranks, and the offsets by rank."""


class Columns(Record):
    """The operations of consecutive ranks: site, chunk, microbatch as columns, NONE if not named.

    microbatch: None if no operation names its microbatch. second: the second operation of a pair. start: the offsets by
        rank.
    """

    site: Column
    chunk: Column
    microbatch: Column | None
    second: Bools
    start: Ints

    def repeat(self, times: Ints) -> Columns:
        """Repeat each operation the given number of times."""
        site, chunk, second = (np.repeat(column, times) for column in (self.site, self.chunk, self.second))
        microbatch = None if self.microbatch is None else np.repeat(self.microbatch, times)
        return Columns(site, chunk, microbatch, second, _ends(times)[self.start])

    @cached_property
    def lengths(self) -> Ints:
        """The number of operations by rank."""
        return np.diff(self.start)


class Chunks(Record):
    """The chunks of consecutive ranks, one rank after another.

    first: the index of each rank's first chunk; low, end: the microbatches of each; key: stage * microbatches.
    """

    first: Ints
    low: Ints
    end: Ints
    key: Ints

    @classmethod
    def of(cls, placement: Placement, ranks: Sequence[int]) -> Chunks:
        """Return the chunks of these ranks in a placement."""
        held = [placement.chunks(rank) for rank in ranks]
        m, each = placement.microbatches, (one for chunks in held for one in chunks)
        rows = [(*placement.ranges[route], stage * m) for route, stage in each]
        low, end, key = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        return cls(_ends(np.array([len(chunks) for chunks in held])), low, end, key)

    def units(self, made: Columns, weights: Bools) -> tuple[Column, Column]:
        """Return each operation's chunk, and the queue from which a W takes the oldest: of its chunk or its rank."""
        many, bare = np.diff(self.first), made.chunk == NONE
        count = many[:1] if (many == many[0]).all() else np.repeat(many, made.lengths)
        of_all = weights & bare & (count > 1)
        if (made.chunk >= count).any() or (bare & ~of_all & (count != 1)).any():
            raise Unsuited
        first = np.repeat(small(self.first[:-1]), made.lengths)
        unit = small(first + np.maximum(made.chunk, 0))
        if of_all.any() and (weights & ~bare & (count > 1)).any():
            raise Unsuited
        return unit, small(first) if of_all.any() else unit


def functions_of(checked: Checked) -> dict[str, ast.Let]:
    """Return the functions that a file defines outside of its ranks."""
    return {x.name.id: x for x in checked.file.items if isinstance(x, ast.Let) and x.parameters}


class Arrays:
    """Writes the programs of a file at one size as arrays."""

    def __init__(self, checked: Checked, names: Names, placement: Placement, most: int) -> None:
        self.names, self.placement, self.most = names, placement, most
        self.ops = np.array([Op[site.op] for site in checked.sites], dtype=np.int8)
        self.kinds = {Op(kind) for kind in self.ops.tolist()}
        self.functions = functions_of(checked)
        sites = {site.span.end: number for number, site in enumerate(checked.sites)}
        self.expansion = Expansion(sites, checked.weights)

    def run(self, programs: Sequence[ast.Rank]) -> Expanded:
        """Write the programs, one for each rank.

        Raises:
            Unsuited: if they must run operation by operation; nothing is charged then.
        """
        parts = [self._beside(programs[ranks[0]], ranks) for ranks in self._ranges(programs)]
        if self.expansion.spent > self.names.budget.left or sum(len(keys) for _, keys in parts) > self.most:
            raise Unsuited
        self.names.budget.pay(self.expansion.spent)
        site = np.concatenate([made.site for made, _ in parts])
        second = np.concatenate([made.second for made, _ in parts])
        start = _ends(np.concatenate([made.lengths for made, _ in parts]))
        return site, np.concatenate([keys for _, keys in parts]), second, start

    def _ranges(self, programs: Sequence[ast.Rank]) -> Iterator[list[int]]:
        """Yield groups of consecutive ranks with the same program, small enough for their columns to stay in caches."""
        each = 2 * self.placement.rank_of.size * self.placement.microbatches // self.placement.ranks
        few = max(AT_ONCE // max(each, 1), 1)
        for _, ranks in groupby(range(len(programs)), lambda rank: (id(programs[rank]), rank // few)):
            yield list(ranks)

    def _beside(self, item: ast.Rank, ranks: list[int]) -> tuple[Columns, Ints]:
        """Return the operations of consecutive ranks, and their keys."""
        lanes = Lanes(len(ranks), self.names, dict(self.functions))
        if isinstance(item.rank, ast.Name) and id(item.rank) not in self.names.code:
            lanes.values[item.rank.id] = Values(np.array(ranks, dtype=np.int64), ranks[0], ranks[-1])
        self.expansion.spent += self.expansion.weights[id(item)] * len(ranks)
        count, batches = self.expansion.block(item.body, lanes)
        start = _ends(np.broadcast_to(count, len(ranks)))
        if start[-1] > self.most:
            raise Unsuited
        made, chunks = _gathered(batches, start), Chunks.of(self.placement, ranks)
        if any(batch.drain for batch in batches):
            drain = np.zeros(len(self.ops), dtype=np.bool_)
            drain[[batch.site for batch in batches if batch.drain]] = True
            made = made.repeat(self._drained(made, chunks, drain[made.site]))
            if made.start[-1] > self.most:
                raise Unsuited
        return made, self._keys(made, chunks)

    def _drained(self, made: Columns, chunks: Chunks, drains: Bools) -> Ints:
        """Return 1 per operation; for a drain, the number of I before it without a W or an earlier drain."""
        op = self.ops[made.site]
        _, unit = chunks.units(made, weights := op == Op.W)
        change = (op == Op.I).astype(np.int64) - (weights & ~drains)
        order = np.argsort(unit, kind="stable")
        total = np.cumsum(change[order])
        here = np.flatnonzero(drains[order])
        of = unit[order][here]
        before = np.searchsorted(unit[order], of)
        left = total[here] - np.where(before > 0, total[before - 1], 0)
        length = left - np.where(fresh(of), 0, np.roll(left, 1))
        if (length < 0).any():
            raise Unsuited
        times = np.ones(len(order), dtype=np.int64)
        times[order[here]] = length
        return times

    def _keys(self, made: Columns, chunks: Chunks) -> Ints:
        """Return stage * microbatches + microbatch for each operation."""
        op = self.ops[made.site]
        unit, of_weights = chunks.units(made, op == Op.W)
        keys = np.zeros(len(op), dtype=np.int64)
        for kinds, mirror in zip(_TURNS, (False, self.placement.slices > 1), strict=True):
            self._turn(made, chunks, unit, np.flatnonzero(among(op, self.kinds & kinds)), keys, mirror)
        for kind, oldest in OLDEST.items():
            if kind not in self.kinds or not len(at := np.flatnonzero(op == kind)):
                continue
            source, named = np.flatnonzero(op == oldest), made.microbatch
            if self.placement.slices > 1 and kind in RESTORES:
                raise Unsuited
            if named is not None and ((named[at] != NONE).any() or len(np.unique(keys[source])) < len(source)):
                raise Unsuited
            _follow(at, source, of_weights if kind is Op.W else unit, keys)
        return keys

    def _turn(self, made: Columns, chunks: Chunks, unit: Column, at: Ints, keys: Ints, mirror: bool) -> None:
        """Fill in the keys of operations that take their chunk's next microbatch, or all name their microbatch."""
        of = unit[at]
        if made.microbatch is not None and (named := made.microbatch[at] != NONE).any():
            microbatch = made.microbatch[at]
            if not (named & (chunks.low[of] <= microbatch) & (microbatch < chunks.end[of])).all():
                raise Unsuited
            keys[at] = chunks.key[of] + microbatch
            return
        count = np.bincount(of, minlength=len(chunks.low))
        if (count > chunks.end - chunks.low).any():
            raise Unsuited
        turn = np.arange(len(at)) + np.repeat(chunks.low - np.cumsum(count) + count, count)
        if mirror:
            turn = mirrored(turn, self.placement.slices)
        keys[at[np.argsort(of, kind="stable")]] = turn + np.repeat(chunks.key, count)


_TURNS = [
    {op for op in COMPUTES if op not in OLDEST and op.kind.makes[0] is result}
    for result in (Result.ACTIVATION, Result.GRADIENT)
]
"""The kinds that take turns together."""


def _follow(at: Ints, source: Ints, unit: Column, keys: Ints) -> None:
    """Fill in the keys of operations; the n-th operation of a unit has the microbatch of the n-th source in it."""
    at, source = (x[np.argsort(unit[x], kind="stable")] for x in (at, source))
    count, there = (np.bincount(unit[x], minlength=int(unit.max()) + 1) for x in (at, source))
    if (count > there).any():
        raise Unsuited
    of = source[np.arange(len(at)) + np.repeat(np.cumsum(there) - there - np.cumsum(count) + count, count)]
    if (of > at).any():
        raise Unsuited
    keys[at] = keys[of]


def _ends(count: Ints) -> Ints:
    """Return where each of several runs begins, and where the last one ends."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(count, dtype=np.int64)])


def _gathered(batches: Sequence[Batch], start: Ints) -> Columns:
    """Return the written operations, each at its place."""
    size = int(start[-1])
    chunk, site = np.full(size, NONE, dtype=np.int32), np.zeros(size, dtype=np.int32)
    microbatch = chunk.copy() if any(batch.microbatch is not None for batch in batches) else None
    second = np.zeros(size, dtype=np.bool_)
    for batch in batches:
        at = (start[:-1] if batch.lane is None else start[batch.lane]) + batch.at
        site[at] = batch.site
        if batch.second:
            second[at] = True
        for column, values in ((chunk, batch.chunk), (microbatch, batch.microbatch)):
            if values is not None and column is not None:
                if (values.least < 0 and np.any(values.of < 0)) or values.most >= 2**31:
                    raise Unsuited
                column[at] = np.asarray(values.of, dtype=column.dtype)
    return Columns(site, chunk, microbatch, second, start)
