"""The operations of a rank's program: each takes its next microbatch and is recorded.

    F[c], I[c], B[c]   the smallest microbatch of chunk c for which that kind has not run here; I and B count as one
    W[c]               the oldest I of chunk c whose W is missing;  W: of any chunk;  drain W: all of them
    R[c], O[c]         the oldest F of chunk c without an R or O
    L[c]               the oldest O of chunk c whose L is missing
    F[c](i)            microbatch i, which then counts as run
    pending(c)         the number of I of chunk c without a W;  pending: of all chunks
    with slices I, B, R and L run in reverse within a sequence: the last remaining slice of the oldest sequence

An operation is stored as two integers, its site and stage * microbatches + microbatch; the columns are made at the end.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from pipesched.diagnostics import Code
from pipesched.language.execution import Halt
from pipesched.model.numbers import interval, ranges
from pipesched.model.ops import COMPUTES, OLDEST, RESTORES, Op, Result
from pipesched.model.placement import Placement
from pipesched.model.slices import mirrored

Emission: TypeAlias = Callable[..., None]
Entry: TypeAlias = tuple[int, int]  # chunk and microbatch


@dataclass(slots=True)
class Turn:
    """The next microbatch of a chunk, for one kind: the smallest at or after `low` that has not run.

    slices: the number of slices per sequence; the last one runs first. named: microbatches after `next` that have run.
    """

    low: int
    end: int
    slices: int = 1
    next: int = field(init=False)
    named: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.next = self.low

    @classmethod
    def of(cls, chunk: tuple[int, int, int], slices: int, others: Collection[int]) -> Turn:
        """Return the `Turn` of a chunk. others: microbatches in its range that it does not run."""
        made = cls(*chunk[:2], slices)
        for microbatch in sorted(others):
            made.name(microbatch)
        return made

    def name(self, microbatch: int) -> None:
        """Mark a microbatch as run."""
        turn = mirrored(microbatch, self.slices)
        if turn >= self.next:
            self.named.add(turn)
            self.skip()

    def skip(self) -> None:
        """Skip the microbatches that have already run."""
        while self.next in self.named:
            self.named.remove(self.next)
            self.next += 1


class Pending:
    """The I of a rank that lack a W, oldest first: one list for each chunk, and one for all chunks under None.

    It is also used for F without R or O, and O without L. of: for each chunk and for None, the number of missing
    operations of each (chunk, microbatch). slices: the number of slices per sequence; the last one runs first.
    """

    def __init__(self, chunks: int = 1, slices: int = 1) -> None:
        self.slices = slices
        self.every: OrderedDict[Entry, int] = OrderedDict()
        alone = chunks == 1
        self.of = {None: self.every} | {chunk: self.every if alone else OrderedDict() for chunk in range(chunks)}
        self.begun = self.twice = False

    def add(self, entry: Entry) -> None:
        """Record that an I runs."""
        count = self.every.get(entry, 0) + 1
        self.every[entry] = self.of[entry[0]][entry] = count
        self.begun = True
        if count > 1:
            self.twice = True

    def take(self, entry: Entry) -> None:
        """Record that a W runs, whether its I is pending or not."""
        if (count := self.every.get(entry, 0)) > 1:
            self.every[entry] = self.of[entry[0]][entry] = count - 1
        elif count:
            del self.every[entry]
            self.of[entry[0]].pop(entry, None)

    def oldest(self, chunk: int | None) -> Entry | None:
        """Return the chunk and the microbatch of the oldest pending I; with slices, of the last one of its sequence."""
        for entry in self.of[chunk]:
            if self.slices == 1:
                return entry
            first = entry[1] - entry[1] % self.slices
            return next(
                (entry[0], i) for i in reversed(range(first, first + self.slices)) if (entry[0], i) in self.every
            )
        return None

    def count(self, chunk: int | None) -> int:
        """Return the number of missing W."""
        return sum(self.of[chunk].values()) if self.twice else len(self.of[chunk])


class Rule(NamedTuple):
    """A line of `greedy`: the next operation of a kind and a chunk, if the condition is true."""

    site: int
    op: Op
    chunk: int | None
    when: Callable[[], object] | None


def _chunks(placement: Placement, rank: int) -> tuple[dict[Entry, int], list[tuple[int, int, int]], list[set[int]]]:
    """Return the chunk of each route and stage on a rank; the first microbatch, the end and the stage of each chunk;
    and, for each chunk, the microbatches in its range that it does not run.
    """
    ways = {at: (placement.shared[at[0]], at[1]) if placement.shared else at for at in placement.chunks(rank)}
    taken: dict[Entry, list[Entry]] = {way: [] for way in sorted({*ways.values()})}
    for (route, _), way in ways.items():
        taken[way].append(placement.ranges[route])
    ends = [(min(each)[0], max(high for _, high in each), stage) for (_, stage), each in taken.items()]
    runs = zip(ends, taken.values(), strict=True)
    others = [{*range(low, high)}.difference(*(range(*x) for x in each)) for (low, high, _), each in runs]
    number = {way: chunk for chunk, way in enumerate(taken)}
    return {at: number[way] for at, way in ways.items()}, ends, others


class Emitter:
    """The operations of one rank. limit: the largest number of operations. letters: the kinds in the file.

    chunks: (first microbatch, end, stage) of every chunk; others: for each chunk, the microbatches in its range that it
    does not run. sites, keys: the sites and keys of the written operations; second: positions of the second parts of
    overlap pairs. rules: the lines of a `greedy`; holds: the memory that each chunk holds when a rule is evaluated, in
    multiples of `part`, a fraction of the unit of peaks.
    """

    def __init__(self, rank: int, placement: Placement, limit: int, letters: Collection[str]) -> None:
        self.rank, self.limit, slices = rank, limit, placement.slices
        self.chunk_of, self.chunks, self.others = _chunks(placement, rank)
        chunks = self.chunks
        self.sites: list[int] = []
        self.keys: list[int] = []
        self.second: list[int] = []
        self.base = [stage * placement.microbatches for _, _, stage in chunks]
        self.frozen = placement.frozen
        self.written = [op for op in COMPUTES if op is Op.W or op.name in letters]
        missing = [op for op in self.written if op in OLDEST]
        self.missing = {op: Pending(len(chunks), slices if op in RESTORES else 1) for op in missing}
        self.pending = self.missing[Op.W]
        self.turns: dict[Result, list[Turn]] = {}
        for result in {op.kind.makes[0] for op in COMPUTES if op not in OLDEST}:
            along = slices if result is Result.GRADIENT else 1
            self.turns[result] = [
                Turn.of(chunk, along, others) for chunk, others in zip(chunks, self.others, strict=True)
            ]
        self.rules: list[Rule] = []
        self.holds, self.part = [0] * len(chunks), Fraction(1)

    def functions(self) -> dict[str, Callable[..., object]]:
        """Return the functions that translated programs call, by name."""
        made: dict[str, Callable[..., object]] = {"drain": self._drain, "pair": self._pair, "pending": self._pending}
        made |= {"step": self._step, "held": self._held, "greedy": self._greedy}
        return made | {op.name: self._emission(op) for op in self.written}

    def _emission(self, op: Op) -> Emission:
        """Return the function that writes an operation of a kind, for the next or a named microbatch."""
        turns = self.turns.get(op.kind.makes[0])
        takes = [missing for of, missing in self.missing.items() if of is op]
        adds = [missing for of, missing in self.missing.items() if OLDEST[of] is op]

        def emit(site: int, chunk: int | None = None, microbatch: int | None = None) -> None:
            entry = self.upcoming(op, chunk) if microbatch is None else self._named(op, chunk, microbatch)
            if entry is None:
                raise self._none_left(op, chunk)
            self.sites.append(site)
            self.keys.append(self.key(entry))
            if turns is not None:
                turns[entry[0]].name(entry[1])
            for missing in takes:
                missing.take(entry)
            for missing in adds:
                missing.add(entry)

        return emit

    def upcoming(self, op: Op, chunk: int | None) -> Entry | None:
        """Return (chunk, microbatch) of a kind's next operation, the oldest pending or the next in order, or None."""
        self._require(op, chunk, every=op is Op.W)
        if op in OLDEST:
            return self.missing[op].oldest(chunk)
        turn = self.turns[op.kind.makes[0]][chunk or 0]
        return (chunk or 0, mirrored(turn.next, turn.slices)) if turn.next < turn.end else None

    def _named(self, op: Op, chunk: int | None, microbatch: int) -> Entry:
        self._require(op, chunk)
        low, end, _ = self.chunks[chunk or 0]
        if not low <= microbatch < end or microbatch in self.others[chunk or 0]:
            here = f"chunk {chunk or 0} of rank {self.rank} runs only {self._runs(chunk or 0)}"
            message = f"{op.name} of microbatch {microbatch}: {here}"
            raise Halt(Code.MICROBATCH_RANGE, message, "names this microbatch")
        self._limited()
        return chunk or 0, microbatch

    def _runs(self, chunk: int) -> str:
        """Return the microbatches of a chunk, in words."""
        (low, end, _), others = self.chunks[chunk], sorted(self.others[chunk])
        if low >= end:
            return "0 microbatches"
        return f"microbatches {interval(low, end)}" + (f" except {ranges(others)}" if others else "")

    def _limited(self) -> None:
        if len(self.sites) >= self.limit:
            message, help = f"the program of a rank has more than {self.limit} operations", "--max-ops raises the limit"
            raise Halt(Code.TOO_MANY_OPERATIONS, message, "one too many", help)

    def key(self, entry: Entry) -> int:
        """Return stage * microbatches + microbatch."""
        return self.base[entry[0]] + entry[1]

    def _drain(self, site: int, chunk: int | None = None) -> None:
        self._require(Op.W, chunk, every=True)
        weight = self._emission(Op.W)
        for _ in range(self.pending.count(chunk)):
            weight(site, chunk)

    def _step(self, site: int, chunk: int | None = None) -> None:
        self._require(Op.STEP, chunk, every=True)
        pairs = zip(self.base, self.chunks, strict=True)
        every = sorted({base for base, (_, _, stage) in pairs if stage not in self.frozen})
        for key in every if chunk is None else [self.base[chunk]]:
            self._limited()
            self.sites.append(site)
            self.keys.append(key)

    def _pair(self) -> None:
        self.second.append(len(self.sites) - 1)

    def _pending(self, chunk: int | None = None) -> int:
        if chunk is not None:
            self._require(Op.W, chunk, f"pending({chunk})")
        return self.pending.count(chunk)

    def _held(self, chunk: int | None = None) -> Fraction:
        if chunk is None:
            return self.part * sum(self.holds)
        self._require(Op.F, chunk, f"held({chunk})")
        return self.part * self.holds[chunk]

    def _greedy(self, site: int, letter: str, chunk: int | None, when: Callable[[], object] | None) -> None:
        self._require(Op[letter], chunk, every=letter == "W")
        self.rules.append(Rule(site, Op[letter], chunk, when))

    def _require(self, op: Op, chunk: int | None, said: str = "", *, every: bool = False) -> None:
        """Refuse an unknown chunk and, unless `every` is set, an operation without a chunk if the rank has several."""
        count = len(self.chunks)
        known = 0 <= chunk < count if chunk is not None else every or count == 1
        if not known:
            raise self._no_chunk(op.name, chunk, said)

    def _no_chunk(self, op: str, chunk: int | None, said: str = "") -> Halt:
        count = len(self.chunks)
        if chunk is None and count:
            message = f"rank {self.rank} holds {count} chunks: which one is this {op} for?"
            return Halt(Code.AMBIGUOUS_CHUNK, message, "names no chunk", f"write {op}[0] … {op}[{count - 1}]")
        chunk = chunk or 0
        held = "no chunk" if not count else "only chunk 0" if count == 1 else f"chunks {interval(0, count)}"
        bare = f"a rank with one stage needs no chunk number: write `{op}`, or `{op}({chunk})` for microbatch {chunk}"
        help = bare if count == 1 else f"use {op}[0] to {op}[{count - 1}]" if count else "give it a stage"
        message = f"{said or f'{op}[{chunk}]'}: rank {self.rank} holds {held}"
        return Halt(Code.CHUNK, message, "the rank does not have this chunk", f"chunks count from 0; {help}")

    def _none_left(self, op: Op, chunk: int | None) -> Halt:
        """Return the error for an operation whose kind has no microbatch left."""
        name, on = op.name, f"rank {self.rank}"
        if op is Op.W:
            fused = not self.pending.begun and any(x.next > x.low for x in self.turns[Result.GRADIENT])
            letters = "; B is the full backward here; the B of zero-bubble papers is I: write `I` for `B`"
            message = f"no W is pending on {on if chunk is None else f'chunk {chunk} of {on}'}"
            help = "an I must run first" + letters * fused
            return Halt(Code.NO_PENDING_W, message, "every I already has its W", help)
        stage = self.chunks[chunk or 0][2]
        here, label = f"{name}[{chunk or 0}] on {on}", "no microbatch is left"
        if op in OLDEST:
            of = OLDEST[op].name
            message = f"{here}: every {of} of stage {stage} so far already has its {name}"
            return Halt(Code.PAST_THE_END, message, label, f"write one {name} for each {of}, after it")
        message = f"{here}: all {self._runs(chunk or 0)} of stage {stage} already have their {name}"
        help = "check the bounds of the loops: they request more operations than there are microbatches"
        return Halt(Code.PAST_THE_END, message, label, help)
