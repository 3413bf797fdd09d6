"""Converts the output of `lanes` to columns: each operation of all ranks gets its stage and microbatch.

If a kind counts its own operations, its n-th operation in a chunk has the n-th microbatch. If a kind follows another (W
an I, R and O an F, L an O), it has the microbatch of the other kind's n-th operation. `drain W` stands for all W that
are missing at that point. `operations` does the same one operation at a time; a program whose order depends on more
than these counts raises `Unsuited`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from typing import TypeAlias

import numpy as np

from pipesched.language import ast
from pipesched.language.execution import Names
from pipesched.language.lanes import NONE, Expansion, Lanes, Unsuited, Values, counted
from pipesched.language.typecheck import Checked
from pipesched.model.columns import Bools, Column, Ints, fresh, small
from pipesched.model.ops import COMPUTES, OLDEST, RESTORES, Op, Result
from pipesched.model.placement import Placement
from pipesched.model.slices import mirrored
from pipesched.support.record import Record

AT_ONCE = 1 << 17  # operations of ranks whose programs run side by side, approximately
_CACHED = 1 << 16  # operations that are sorted at once, approximately

Expanded: TypeAlias = tuple[Column, Column, Column, Bools, Ints]
"""Sites, kinds, keys (stage * microbatches + microbatch) and overlap flags of all ranks, and the offsets by rank."""


class Columns(Record):
    """The operations of consecutive ranks. lengths: the number on each rank. chunk, microbatch: NONE if not named."""

    lengths: Ints
    site: Column
    chunk: Column
    microbatch: Column

    def repeat(self, times: Ints) -> Columns:
        """Repeat each operation the given number of times."""
        columns = (np.repeat(column, times) for column in (self.site, self.chunk, self.microbatch))
        return Columns(np.diff(_ends(times)[_ends(self.lengths)]), *columns)


class Chunks(Record):
    """The chunks of consecutive ranks, one rank after another.

    first: the index of each rank's first chunk; low, end: the range of microbatches of each chunk; key: stage *
    microbatches of its stage.
    """

    first: Ints
    low: Column
    end: Column
    key: Column

    @classmethod
    def of(cls, placement: Placement, ranks: Sequence[int]) -> Chunks:
        """Return the chunks of these consecutive ranks in a placement."""
        order, first = placement.by_rank
        first = first[ranks[0] : ranks[-1] + 2]
        route, stage = np.divmod(order[first[0] : first[-1]], placement.stages)
        narrow = placement.stages * placement.microbatches < 2**31  # numpy divides 32 bits much faster
        low, end = np.array(placement.ranges, dtype=np.int32 if narrow else np.int64).T[:, route]
        return cls(first - first[0], low, end, (stage * placement.microbatches).astype(low.dtype))

    def units(self, made: Columns, weights: Bools) -> tuple[Column, Column]:
        """Return the chunk of each operation, and the queue (by chunk or by rank) from which a W takes the oldest I."""
        many, first = small(np.diff(self.first)), np.repeat(small(self.first)[:-1], made.lengths)
        if (made.chunk >= np.repeat(many, made.lengths)).any():
            raise Unsuited
        if (many == 1).all():
            return first, first
        unit = made.chunk.astype(first.dtype)
        unit += first
        if not (bare := made.chunk == NONE).any():
            return unit, unit
        unit[bare] = first[bare]
        odd, several = (np.repeat(which, made.lengths) for which in (many != 1, many > 1))
        of_all = weights & bare & several
        if (bare & ~of_all & odd).any() or (of_all.any() and (weights & ~bare & several).any()):
            raise Unsuited
        return unit, first if of_all.any() else unit


def functions_of(checked: Checked) -> dict[str, ast.Let]:
    """Return the functions that a file defines outside of its ranks."""
    return {x.name.id: x for x in checked.file.items if isinstance(x, ast.Let) and x.parameters}


class Arrays:
    """Writes the programs of a file at one size as arrays."""

    def __init__(self, checked: Checked, names: Names, placement: Placement, most: int) -> None:
        self.names, self.placement, self.most = names, placement, most
        self.ops = np.array([Op[site.op] for site in checked.sites], dtype=np.int8)
        self.functions = functions_of(checked)
        self.expansion = Expansion({x.span.end: number for number, x in enumerate(checked.sites)}, checked.weights)

    def run(self, programs: Sequence[ast.Rank]) -> Expanded:
        """Expand the programs, one for each rank.

        Raises:
            Unsuited: the programs must run operation by operation; in this case nothing is charged.
        """
        few, parts = self._few(AT_ONCE), list[tuple[Column, ...]]()
        for _, ranks in groupby(range(len(programs)), lambda rank: (id(programs[rank]), rank // few)):
            parts += self._beside(programs, list(ranks))
        site, op, keys, lengths = map(np.concatenate, zip(*parts, strict=True))
        if self.expansion.spent > self.names.budget.left or len(site) > self.most:
            raise Unsuited
        self.names.budget.pay(self.expansion.spent)
        return site, op, keys, self._among(self.expansion.second, site), _ends(lengths)

    def _few(self, operations: int) -> int:
        """Return how many ranks together have about this number of operations, if all ranks have equally many."""
        each = 2 * self.placement.rank_of.size * self.placement.microbatches // self.placement.ranks
        return max(operations // max(each, 1), 1)

    def _beside(self, programs: Sequence[ast.Rank], ranks: list[int]) -> Iterator[tuple[Column, ...]]:
        """Yield the operations of consecutive ranks of one program: sites, kinds, keys, and the count on each rank."""
        item = programs[ranks[0]]
        lanes = Lanes(len(ranks), self.names, dict(self.functions))
        if isinstance(item.rank, ast.Name) and id(item.rank) not in self.names.code:
            lanes.values[item.rank.id] = Values(np.array(ranks, dtype=np.int32), ranks[0], ranks[-1])
        self.expansion.spent += self.expansion.weights[id(item)] * len(ranks)
        written = self.expansion.block(item.body, lanes)
        start = _ends(np.broadcast_to(counted([written], len(ranks)), len(ranks)))
        if start[-1] > self.most:
            raise Unsuited
        columns = zip(written.columns, self.expansion.types, strict=True)
        filled = (np.asarray(NONE if x is None else x, dtype=type) for x, type in columns)
        whole = [np.broadcast_to(column, start[-1]) for column in filled]
        few = self._few(_CACHED)
        for low in range(0, len(ranks), few):
            cut = start[low : low + few + 1]
            made = Columns(np.diff(cut), *(column[cut[0] : cut[-1]] for column in whole))
            chunks = Chunks.of(self.placement, ranks[low : low + few])
            if self.expansion.drains:
                made = made.repeat(self._drained(made, chunks, self._among(self.expansion.drains, made.site)))
                if len(made.site) > self.most:
                    raise Unsuited
            op = self.ops.take(made.site)
            yield made.site, op, self._keys(made, chunks, op), made.lengths

    def _among(self, sites: Collection[int], column: Column) -> Bools:
        """Return a mask of the operations at these sites."""
        if not sites:
            return np.zeros(len(column), dtype=np.bool_)
        return np.isin(np.arange(len(self.ops)), list(sites)).take(column)

    def _drained(self, made: Columns, chunks: Chunks, drains: Bools) -> Ints:
        """Return 1 for each operation, but for a drain the number of earlier I that no W and no drain has taken."""
        op = self.ops.take(made.site)
        _, unit = chunks.units(made, weights := op == int(Op.W))
        change = (op == int(Op.I)).astype(np.int64) - (weights & ~drains)
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

    def _keys(self, made: Columns, chunks: Chunks, op: Column) -> Column:
        """Return stage * microbatches + microbatch for each operation."""
        unit, of_weights = chunks.units(made, op == int(Op.W))
        keys = self._turns(made, chunks, unit)
        for kind, oldest in OLDEST.items():
            at, source = (np.flatnonzero(op == int(x)) for x in (kind, oldest))
            if not len(at):
                continue
            twice = (made.microbatch[source] != NONE).any() and len(np.unique(keys[source])) < len(source)
            if twice or (made.microbatch[at] != NONE).any() or (self.placement.slices > 1 and kind in RESTORES):
                raise Unsuited
            _follow(at, source, of_weights if kind is Op.W else unit, keys)
        return keys

    def _turns(self, made: Columns, chunks: Chunks, unit: Column) -> Column:
        """Return the keys of operations that take their chunk's next microbatch, or name one; other keys are arbitrary.

        Operations are sorted by the result they make (`_TURNS`), then by chunk; the position in a group gives the
        microbatch. Operations that name a microbatch or follow another kind come last.
        """
        size, others = len(chunks.low), len(Result)
        turns = _TURNS.take(self.ops) * size
        of = turns.astype(np.uint16 if size * (others + 1) < 2**16 else np.int64).take(made.site)
        if (named := made.microbatch != NONE).any():
            if any(len(np.unique(named[of == turn * size])) > 1 for turn in range(others)):
                raise Unsuited
            of[named] = others * size
        of = of + unit
        count = np.bincount(of, minlength=(others + 1) * size)
        if (count.reshape(-1, size)[:others] > chunks.end - chunks.low).any():
            raise Unsuited
        begin, (low, key) = (
            np.cumsum(count) - count,
            (np.concatenate([x] * (others + 1)) for x in (chunks.low, chunks.key)),
        )
        turn: Column = np.arange(len(of), dtype=key.dtype)
        turn = turn + (low - begin).astype(key.dtype).repeat(count)
        if self.placement.slices > 1:
            gradients = slice(*begin[[Result.GRADIENT * size, (Result.GRADIENT + 1) * size]])
            turn[gradients] = mirrored(turn[gradients], self.placement.slices)
        turn += key.repeat(count)
        keys = np.empty_like(turn)
        keys[np.argsort(of, kind="stable")] = turn
        of, microbatch = unit[named], made.microbatch[named]
        if ((microbatch < chunks.low[of]) | (microbatch >= chunks.end[of])).any():
            raise Unsuited
        keys[named] = chunks.key[of] + microbatch
        return keys


_TURNS = np.array([op.kind.makes[0] if op in COMPUTES and op not in OLDEST else len(Result) for op in Op])
"""The result of each kind; kinds with the same result share a sequence of microbatches. `len(Result)` stands for no
sequence.
"""


def _follow(at: Ints, source: Ints, unit: Column, keys: Column) -> None:
    """Fill in `keys[at]`: in each chunk or rank (`unit`) the n-th of `at` takes the key of the n-th of `source`."""
    at, source = (x[np.argsort(unit[x], kind="stable")] for x in (at, source))
    count, there = (np.bincount(unit[x], minlength=int(unit.max()) + 1) for x in (at, source))
    if (count > there).any():
        raise Unsuited
    of = source[np.arange(len(at)) + np.repeat(np.cumsum(there) - there - np.cumsum(count) + count, count)]
    if (of > at).any():
        raise Unsuited
    keys[at] = keys[of]


def _ends(count: Ints) -> Ints:
    """Return the running sums of the counts, from 0 on."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(count, dtype=np.int64)])
