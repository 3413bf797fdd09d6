"""Writes orders as words: the operations of a rank in the letters of the language.

    F[c]                   the next microbatch of the chunk
    F[c](i)                any other microbatch of the chunk
    W                      for the oldest I of the rank, if this is true of every W of the rank
    W[c]                   for the oldest I of the chunk
    overlap(F[0], B[1])    one letter, since it is one slot

The next microbatch follows the rule of the language: for a kind (F; I and B; W) and a chunk, the smallest microbatch
that has not run yet; for W the oldest I without a W, for R and O the oldest F, for L the oldest O; R and L of slices go
through their sequence in reverse. The usual case, microbatches in order, is recognized immediately.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pipesched.analysis.timeline import paired
from pipesched.diagnostics import Code, fail
from pipesched.language.operations import Pending, Turn
from pipesched.lift.folding import LETTER, Word
from pipesched.model.columns import Bools, Column, Ints
from pipesched.model.costs import PAIRS
from pipesched.model.ops import COMPUTES, OLDEST, RESTORES, Op, Result
from pipesched.model.placement import Placement
from pipesched.model.schedule import Schedule
from pipesched.model.slices import mirrored

_OLDEST = {op.kind.makes[0]: before for op, before in OLDEST.items()}
"""For each result, the kind whose oldest operation without that result determines the next microbatch."""
_RESTORED = tuple(op.kind.makes[0] for op in RESTORES)
_BARE = 0  # the chunk, counted from 1, of operations without a chunk


@dataclass(frozen=True)
class Words:
    """The order of every rank. drained: for each rank, True if every W takes the oldest I and no I remains without a W.
    series: for each letter whose text has a gap for the microbatch, its series.
    """

    letters: tuple[str, ...]
    weights: tuple[int, ...]
    words: tuple[Word, ...]
    drained: tuple[bool, ...]
    series: Mapping[int, Series]


BLANK = "…"


def words(schedule: Schedule, placement: Placement, *, by_chunk: bool = False, in_series: bool = True) -> Words:
    """Write the order of each rank as words, for a placement whose routes are ranges of microbatches.

    by_chunk: True if every W names its chunk. in_series: True if each series of microbatches becomes a letter.

    Raises:
        PipeschedError: PS814: the language cannot express an operation.
    """
    columns = _Columns(schedule, placement)
    next_ones = columns.next_ones()
    alone = np.array([len(placement.chunks(r)) == 1 for r in range(schedule.ranks)])
    oldest = np.array([columns.oldest(r) for r in range(schedule.ranks)])
    oldest &= alone | (not by_chunk and bool(np.all(oldest | alone)))
    bare = alone[schedule.rank] | (oldest[schedule.rank] & (schedule.op == Op.W))
    chunk = np.where(bare, _BARE, columns.chunk + 1)
    named = np.where(next_ones | (bare & ~alone[schedule.rank]), 0, schedule.microbatch + 1)
    runs = columns.series(next_ones) if in_series else {}
    distinct = {run: i for i, run in enumerate(dict.fromkeys(runs.values()))}
    for at, run in runs.items():
        named[at] = placement.microbatches + 1 + distinct[run]
    texts, numbers, which = _letters(schedule, chunk, named, _chunk_names(placement))
    by_number = list(distinct)
    of_letter = {letter: by_number[number] for letter, number in which.items()}
    weights = tuple(LETTER + (")" in x) + 3 * ("," in x) for x in texts)
    cut = np.searchsorted(np.flatnonzero(~schedule.joined), schedule.start)
    listed = numbers.tolist()
    spelled = tuple(tuple(listed[a:b]) for a, b in pairwise(cut.tolist()))
    return Words(texts, weights, spelled, tuple(oldest.tolist()), of_letter)


class _Columns:
    """The operations of a schedule by rank, chunk and first result: I and B share one sequence."""

    def __init__(self, schedule: Schedule, placement: Placement) -> None:
        self.schedule, self.placement = schedule, placement
        _check_pairs(schedule)
        self.route = _route(schedule, placement)
        number = np.zeros(placement.rank_of.shape, dtype=np.int64)
        for rank in range(placement.ranks):
            for c, at in enumerate(placement.chunks(rank)):
                number[at] = c
        self.chunk = number[self.route, schedule.stage]
        kind = np.array([op.kind.makes[0] for op in COMPUTES], dtype=np.int64)[schedule.op]
        key = (schedule.rank * (int(number.max()) + 1) + self.chunk) * len(Result) + kind
        self.by_group = np.argsort(key, kind="stable")
        self.cut = np.flatnonzero(np.diff(key[self.by_group], prepend=-1, append=-1))
        self.kind = kind

    @property
    def groups(self) -> list[Ints]:
        """The indices of the operations of each rank, chunk and kind, in order."""
        return [self.by_group[a:b] for a, b in pairwise(self.cut.tolist())]

    def series(self, next_ones: Bools) -> dict[int, Series]:
        """Map each operation that belongs to a series of microbatches to this series."""
        paired = self.schedule.joined.copy()
        paired[:-1] |= self.schedule.joined[1:]
        return series(self.groups, self.schedule.op, self.schedule.microbatch, next_ones, paired)

    def next_ones(self) -> Bools:
        """Return a mask of the operations that take the next microbatch of their kind and chunk."""
        found = np.zeros(len(self.schedule), dtype=np.bool_)
        low = [int(np.argmax(self.placement.route_of == route)) for route in range(self.placement.routes)]
        before: dict[tuple[int, int, int], Ints] = {}
        for group in self.groups:
            rank, chunk = int(self.schedule.rank[group[0]]), int(self.chunk[group[0]])
            kind = Result(int(self.kind[group[0]]))
            microbatches = self.schedule.microbatch[group]
            before[rank, chunk, kind] = group
            if kind in _OLDEST:
                first_op = _OLDEST[kind]
                begun = before.get((rank, chunk, first_op.kind.makes[0]), group[:0])
                slices = self.schedule.slices if kind in _RESTORED else 1
                found[group] = self._pending(begun[self.schedule.op[begun] == first_op], group, slices)
                continue
            if kind is Result.GRADIENT:
                microbatches = mirrored(microbatches, self.schedule.slices)
            first = low[int(self.route[group[0]])]
            in_order = bool(np.all(microbatches == first + np.arange(len(group))))
            found[group] = True if in_order else list(_turns(microbatches.tolist(), first))
        return found

    def _pending(self, inputs: Ints, weights: Ints, slices: int) -> bool | list[bool]:
        """Return, for each W, whether it takes the oldest pending I (for each R, the oldest F); True if all do."""
        microbatch = self.schedule.microbatch
        once = not len(inputs) or int(np.bincount(microbatch[inputs]).max()) == 1
        if slices == 1 and once and len(weights) <= len(inputs) and bool(np.all(weights > inputs[: len(weights)])):
            same = microbatch[weights] == microbatch[inputs[: len(weights)]]
            if bool(np.all(same)):
                return True
        pending, begun, found = Pending(slices=slices), set(inputs.tolist()), list[bool]()
        for i in sorted([*inputs.tolist(), *weights.tolist()]):
            entry = 0, int(microbatch[i])
            if i in begun:
                pending.add(entry)
            else:
                found.append(pending.oldest(0) == entry)
                pending.take(entry)
        return found

    def oldest(self, rank: int) -> bool:
        """Return True if a rank's W follow its I in the same order, each after its own I and exactly once."""
        here = slice(int(self.schedule.start[rank]), int(self.schedule.start[rank + 1]))
        op, microbatch, chunk = self.schedule.op[here], self.schedule.microbatch[here], self.chunk[here]
        weight, split = np.flatnonzero(op == Op.W), np.flatnonzero(op == Op.I)
        if len(weight) != len(split) or not bool(np.all(weight > split)):
            return False
        once = (
            not len(split) or int(np.bincount(chunk[split] * self.schedule.microbatches + microbatch[split]).max()) == 1
        )
        return once and bool(np.all((microbatch[weight] == microbatch[split]) & (chunk[weight] == chunk[split])))


def _turns(microbatches: list[int], first: int) -> Iterator[bool]:
    """Yield True for each microbatch that is the smallest that has not run, otherwise False."""
    turn = Turn(first, first)
    for i in microbatches:
        yield i == turn.next
        turn.name(i)


def _check_pairs(schedule: Schedule) -> None:
    second = np.flatnonzero(schedule.second)
    first = second - 1
    right = np.any([paired(schedule, key)[second] for key in PAIRS], axis=0) & ~schedule.joined[first]
    if not bool(np.all(right)):
        i = int(second[np.argmin(right)])
        raise _nowhere(schedule, i, "is the second part of an overlap that the language does not allow")


def _route(schedule: Schedule, placement: Placement) -> Ints:
    """Return the route of every operation, as its microbatch determines it; refuse an operation on a wrong rank."""
    inside = (schedule.microbatch >= 0) & (schedule.microbatch < placement.microbatches)
    inside &= (schedule.stage >= 0) & (schedule.stage < placement.stages)
    route = placement.route_of[np.where(inside, schedule.microbatch, 0)].astype(np.int64)
    right = inside & (placement.rank_of[route, np.where(inside, schedule.stage, 0)] == schedule.rank)
    if not bool(np.all(right)):
        raise _nowhere(schedule, int(np.argmin(right)), "runs on the wrong rank, or its stage does not exist")
    return route


def _nowhere(schedule: Schedule, i: int, why: str) -> Exception:
    message = f"{schedule[i]} on rank {int(schedule.rank[i])} {why}: a .ps file cannot express that"
    return fail(Code.TARGET, message, help="keep it as an order or a torch CSV")


def _chunk_names(placement: Placement) -> list[str]:
    """Return the names of the chunks: numbers, or routes if every rank holds one stage of each route."""
    if placement.routes > 1 and placement.stages == placement.ranks:
        rows = np.sort(placement.rank_of, axis=1)
        if bool(np.all(rows == np.arange(placement.ranks))):
            return list(placement.route_names)
    return [str(c) for c in range(placement.rank_of.size)]


def _letters(
    schedule: Schedule, chunk: Ints, named: Ints, names: list[str]
) -> tuple[tuple[str, ...], Ints, dict[int, int]]:
    """Return the text of each letter in alphabet order, the letter of each slot, and the series of letters."""
    of_chunk = schedule.op.astype(np.int64) * (int(chunk.max(initial=0)) + 1) + chunk
    code = of_chunk * (int(named.max(initial=0)) + 1) + named
    _, where, number = np.unique(code, return_index=True, return_inverse=True)
    run = (named[where] - schedule.microbatches - 1).tolist()
    texts = [
        _text(int(schedule.op[i]), int(chunk[i]), BLANK if n >= 0 else int(named[i]) - 1, names)
        for i, n in zip(where.tolist(), run, strict=True)
    ]
    first = np.flatnonzero(~schedule.joined)
    partner = np.zeros(len(schedule), dtype=np.int64)
    seconds = np.flatnonzero(schedule.joined)
    partner[seconds - 1] = number.reshape(-1)[seconds] + 1
    slot = number.reshape(-1)[first] * (len(texts) + 1) + partner[first]
    kinds, numbers = np.unique(slot, return_inverse=True)
    pairs = [divmod(kind, len(texts) + 1) for kind in kinds.tolist()]
    spelled = tuple(f"overlap({texts[a]}, {texts[b - 1]})" if b else texts[a] for a, b in pairs)
    return (
        spelled,
        numbers.reshape(-1),
        {letter: run[a] for letter, (a, b) in enumerate(pairs) if not b and run[a] >= 0},
    )


def _text(op: int, chunk: int, microbatch: int | str, names: list[str]) -> str:
    of_chunk = f"[{names[chunk - 1]}]" if chunk else ""
    return f"{Op(op).name}{of_chunk}" + (f"({microbatch})" if microbatch != -1 else "")


# Microbatches named one by one in even steps are a loop too. Such a series is one letter: its k-th occurrence on a rank
# names first + k * step.  B(7)  B(6)  B(5)  B(4)  B(3)  B(2)  B(1)  B(0)        for i in 0 .. 8 { B(7 - i) }

LEAST = 4
"""Minimum length of a series, since a shorter one may be a coincidence."""


@dataclass(frozen=True, slots=True)
class Series:
    """The microbatches first, first + step, …. turn: its number among the series of its rank and chunk."""

    first: int
    step: int
    turn: int = 0

    def at(self, offset: int, stride: int) -> str:
        """Return the microbatch as an expression in i, for a loop that advances the series by `stride` steps."""
        return linear(self.first + self.step * offset, self.step * stride, "i")


def series(
    groups: Iterable[Ints], op: Column, microbatch: Column, next_ones: Bools, paired: Bools
) -> dict[int, Series]:
    """Map each operation that belongs to a series of microbatches to this series.

    groups: the indices of the operations of each rank, chunk and kind, in order. next_ones: the operations that need
    not name a microbatch.
    """
    found: dict[int, Series] = {}
    for group in groups:
        if bool(np.all(next_ones[group])):
            continue
        for kind in np.unique(op[group]).tolist():
            here = group[(op[group] == kind) & ~paired[group]]
            for turn, (low, high) in enumerate(_even(microbatch[here].tolist())):
                if not bool(np.all(next_ones[here[low:high]])):
                    first, second = microbatch[here[low : low + 2]].tolist()
                    found |= dict.fromkeys(here[low:high].tolist(), Series(first, second - first, turn))
    return found


def _even(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the bounds of the longest runs with a constant step, from left to right."""
    low = 0
    while low + LEAST <= len(numbers):
        step, high = numbers[low + 1] - numbers[low], low + 2
        while high < len(numbers) and numbers[high] - numbers[high - 1] == step:
            high += 1
        if high - low >= LEAST:
            yield low, high
            low = high
        else:
            low += 1


def linear(base: int, slope: int, variable: str, first: str = "") -> str:
    """Format base + slope * variable, omitting terms that are 0."""
    times = variable if abs(slope) == 1 else f"{abs(slope)} * {variable}"
    terms = [("+", first)] if first else []
    rising = [("-" if slope < 0 else "+", times)] if slope else []
    number = [("-" if base < 0 else "+", str(abs(base)))] if base else []
    terms += [*number, *rising] if slope < 0 <= base or first else [*rising, *number]
    if not terms:
        return "0"
    (sign, head), *others = terms
    return ("-" if sign == "-" else "") + head + "".join(f" {sign} {term}" for sign, term in others)
