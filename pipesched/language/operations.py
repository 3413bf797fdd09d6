"""Operations of a rank's program take the next microbatch and are written down.

    F[c], I[c], B[c]   the smallest microbatch of chunk c for which that kind has not run here; I and B are one kind
    W[c]               the oldest I of chunk c whose W is missing;  W: of any chunk;  drain W: all of them
    R[c], O[c]         the oldest F of chunk c that has had none
    L[c]               the oldest O of chunk c whose L is missing
    F[c](i)            microbatch i, which then counts as run
    pending(c)         how many I of chunk c have no W yet;  pending: of all chunks
    of slices          I, B, R and L of a sequence run backwards: the last slice of the oldest that has one left

An operation is kept as two integers, its site and stage * microbatches + microbatch; the columns are made at the end.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple, TypeAlias, TypeVar

from pipesched.diagnostics import Code
from pipesched.language.execution import Halt
from pipesched.model.ops import COMPUTES, OLDEST, RESTORES, Op, Result
from pipesched.model.placement import Placement
from pipesched.model.slices import mirrored

Emission: TypeAlias = Callable[..., None]
Entry: TypeAlias = tuple[int, int]  # chunk and microbatch


@dataclass(slots=True)
class Turn:
    """The next microbatch of a chunk, for one kind: the smallest in low .. end that has not run.

    key: that of microbatch 0 of its stage. slices: of each sequence, of which the last has the first turn. named: the
    turns of microbatches that ran before theirs.
    """

    low: int
    end: int
    key: int = 0
    slices: int = 1
    next: int = field(init=False)
    named: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.next = self.low

    def name(self, microbatch: int) -> None:
        """Count a microbatch as run."""
        turn = mirrored(microbatch, self.slices)
        if turn >= self.next:
            self.named.add(turn)
            self.skip()

    def skip(self) -> None:
        """Step over the microbatches that were named before their turn."""
        while self.next in self.named:
            self.named.remove(self.next)
            self.next += 1


class Pending:
    """The I of a rank whose W is missing, oldest first: those of each chunk, and of all chunks under None.

    Or the F whose R or O is missing, or the O whose L is. of: by chunk and microbatch, how many are missing. slices:
    of each sequence, whose last slice has its turn first.
    """

    def __init__(self, chunks: int = 1, slices: int = 1) -> None:
        self.slices = slices
        self.every: OrderedDict[Entry, int] = OrderedDict()
        alone = chunks == 1
        self.of = {None: self.every} | {chunk: self.every if alone else OrderedDict() for chunk in range(chunks)}
        self.begun = self.twice = False

    def add(self, entry: Entry) -> None:
        """An I runs."""
        count = self.every.get(entry, 0) + 1
        self.every[entry] = self.of[entry[0]][entry] = count
        self.begun = True
        if count > 1:
            self.twice = True

    def take(self, entry: Entry) -> None:
        """A W runs, whether its I is pending or not."""
        if (count := self.every.get(entry, 0)) > 1:
            self.every[entry] = self.of[entry[0]][entry] = count - 1
        elif count:
            del self.every[entry]
            self.of[entry[0]].pop(entry, None)

    def oldest(self, chunk: int | None) -> Entry | None:
        """Chunk and microbatch of the I that has waited longest, or of the last slice of its sequence that waits."""
        for entry in self.of[chunk]:
            if self.slices == 1:
                return entry
            first = entry[1] - entry[1] % self.slices
            return next(
                (entry[0], i) for i in reversed(range(first, first + self.slices)) if (entry[0], i) in self.every
            )
        return None

    def count(self, chunk: int | None) -> int:
        """Return how many W are missing."""
        return sum(self.of[chunk].values()) if self.twice else len(self.of[chunk])


class Rule(NamedTuple):
    """A line of `greedy`: the next one of a kind and a chunk, where the condition holds."""

    site: int
    op: Op
    chunk: int | None
    when: Callable[[], object] | None


class Emitter:
    """The operations of one rank. limit: how many may be written; letters: those that may be.

    chunks: (first microbatch, end, stage) of every chunk. sites, keys: what was written; second: positions of the
    second parts of overlap pairs. rules: what follows by a rule (`greedy`); holds: by chunk what is held where the rule
    is at, one `part` of the unit of peaks each.
    """

    def __init__(self, rank: int, placement: Placement, limit: int, letters: Collection[str]) -> None:
        self.rank, self.limit, slices = rank, limit, placement.slices
        self.chunks = chunks = [(*placement.ranges[route], stage) for route, stage in placement.chunks(rank)]
        self.sites: list[int] = []
        self.keys: list[int] = []
        self.second: list[int] = []
        self.base = _by_chunk([stage * placement.microbatches for _, _, stage in chunks])
        self.written = [op for op in COMPUTES if op is Op.W or op.name in letters]
        missing = [op for op in self.written if op in OLDEST]
        self.missing = {op: Pending(len(chunks), slices if op in RESTORES else 1) for op in missing}
        self.pending = self.missing[Op.W]
        self.turns: dict[Result, dict[int | None, Turn]] = {}
        for result in {op.kind.makes[0] for op in COMPUTES if op not in OLDEST}:
            along = slices if result is Result.GRADIENT else 1
            turns = [Turn(low, end, stage * placement.microbatches, along) for low, end, stage in chunks]
            self.turns[result] = _by_chunk(turns)
        self.rules: list[Rule] = []
        self.holds, self.part = [0] * len(chunks), Fraction(1)

    def functions(self) -> dict[str, Callable[..., object]]:
        """Return the functions that translated programs call, by name."""
        made: dict[str, Callable[..., object]] = {"drain": self._drain, "pair": self._pair, "pending": self._pending}
        made |= {"held": self._held, "greedy": self._greedy}
        for op in self.written:
            made |= {op.name: self._oldest(op) if op in OLDEST else self._next(op), f"{op.name}_at": self._named(op)}
        return made

    def _then(self, op: Op) -> list[Callable[[Entry], None]]:
        """Return the functions to call once one of a kind is written."""
        takes = [missing.take for of, missing in self.missing.items() if of is op]
        return [*takes, *(missing.add for of, missing in self.missing.items() if OLDEST[of] is op)]

    def _next(self, op: Op) -> Emission:
        """The emission of the next one of a kind. This runs once an operation: everything it touches is local."""
        turns, site_list, key_list = self.turns[op.kind.makes[0]], self.sites.append, self.keys.append
        then, sliced = self._then(op), any(turn.slices > 1 for turn in turns.values())

        def emit(site: int, chunk: int | None = None) -> None:
            try:
                turn = turns[chunk]
            except KeyError:
                raise self._no_chunk(op.name, chunk) from None
            microbatch = turn.next
            if microbatch >= turn.end:
                raise self._none_left(op, chunk)
            turn.next = microbatch + 1
            if turn.named:
                turn.skip()
            if sliced:
                microbatch = mirrored(microbatch, turn.slices)
            site_list(site)
            key_list(turn.key + microbatch)
            if then:
                for call in then:
                    call((chunk or 0, microbatch))

        return emit

    def _named(self, op: Op) -> Emission:
        """Return the emission of one kind of a microbatch by its number."""
        turns, then = self.turns.get(op.kind.makes[0]), self._then(op)

        def emit(site: int, microbatch: int, chunk: int | None = None) -> None:
            if chunk not in self.base:
                raise self._no_chunk(op.name, chunk)
            low, end, _ = self.chunks[chunk or 0]
            if not low <= microbatch < end:
                here = f"chunk {chunk or 0} of rank {self.rank} runs {low} .. {end}"
                message = f"{op.name} of microbatch {microbatch}: {here}"
                raise Halt(Code.MICROBATCH_RANGE, message, "names this microbatch")
            if len(self.sites) >= self.limit:
                message, help = f"a rank writes more than {self.limit} operations", "--max-ops raises the limit"
                raise Halt(Code.TOO_MANY_OPERATIONS, message, "one too many", help)
            if turns is not None:
                turns[chunk].name(microbatch)
            self.sites.append(site)
            self.keys.append(self.base[chunk] + microbatch)
            for call in then:
                call((chunk or 0, microbatch))

        return emit

    def _oldest(self, op: Op) -> Emission:
        """Return the emission of a kind for the oldest of another that has had none."""
        then, oldest, base, every = self._then(op), self.missing[op].oldest, self.base, op is Op.W
        site_list, key_list = self.sites.append, self.keys.append

        def emit(site: int, chunk: int | None = None) -> None:
            if chunk not in base:
                self._require(op, chunk, every=every)
            entry = oldest(chunk)
            if entry is None:
                raise self._none_left(op, chunk)
            site_list(site)
            key_list(base[entry[0]] + entry[1])
            for call in then:
                call(entry)

        return emit

    def _drain(self, site: int, chunk: int | None = None) -> None:
        self._require(Op.W, chunk, every=True)
        weight = self._oldest(Op.W)
        for _ in range(self.pending.count(chunk)):
            weight(site, chunk)

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

    def upcoming(self, op: Op, chunk: int | None) -> int | None:
        """Return the key of the next one of a kind, if there is one."""
        if op in OLDEST:
            oldest = self.missing[op].oldest(chunk)
            return None if oldest is None else self.base[oldest[0]] + oldest[1]
        turn = self.turns[op.kind.makes[0]][chunk]
        return turn.key + mirrored(turn.next, turn.slices) if turn.next < turn.end else None

    def _require(self, op: Op, chunk: int | None, said: str = "", *, every: bool = False) -> None:
        """Refuse a chunk that is not there, and none where there are several, unless every one may be meant."""
        if chunk not in self.base and not (every and chunk is None):
            raise self._no_chunk(op.name, chunk, said)

    def _no_chunk(self, op: str, chunk: int | None, said: str = "") -> Halt:
        count = len(self.chunks)
        if chunk is None and count:
            message = f"rank {self.rank} holds {count} chunks: which one is this {op} of?"
            return Halt(Code.AMBIGUOUS_CHUNK, message, "names no chunk", f"write {op}[0] … {op}[{count - 1}]")
        chunk = chunk or 0
        held = "no chunk" if not count else "only chunk 0" if count == 1 else f"chunks 0 .. {count}"
        bare = f"a rank with one stage needs none: write `{op}`, or `{op}({chunk})` for microbatch {chunk}"
        help = bare if count == 1 else f"there are {op}[0] to {op}[{count - 1}]" if count else "give it a stage"
        message = f"{said or f'{op}[{chunk}]'}: rank {self.rank} holds {held}"
        return Halt(Code.CHUNK, message, "the rank has no such chunk", f"chunks count from 0; {help}")

    def _none_left(self, op: Op, chunk: int | None) -> Halt:
        """Return the error of an operation of a kind that has no next microbatch."""
        name, on = op.name, f"rank {self.rank}"
        if op is Op.W:
            fused = not self.pending.begun and any(x.next > x.low for x in self.turns[Result.GRADIENT].values())
            letters = "; B is the whole backward here, and what zero-bubble papers call B is I: write `I` for `B`"
            message = f"no W is pending on {on if chunk is None else f'chunk {chunk} of {on}'}"
            help = "an I must come first" + letters * fused
            return Halt(Code.NO_PENDING_W, message, "every I has had its W", help)
        low, end, stage = self.chunks[chunk or 0]
        here, label = f"{name}[{chunk or 0}] on {on}", "there is no next microbatch"
        if op in OLDEST:
            of = OLDEST[op].name
            message = f"{here}: every {of} of stage {stage} so far has had its {name}"
            return Halt(Code.PAST_THE_END, message, label, f"an {of} comes first, and one {name} for each")
        message = f"{here}: all microbatches {low} .. {end} of stage {stage} have had their {name}"
        help = "check the bounds of the loops: they ask for more operations than there are microbatches"
        return Halt(Code.PAST_THE_END, message, label, help)


Part = TypeVar("Part")


def _by_chunk(parts: Sequence[Part]) -> dict[int | None, Part]:
    """Return the parts by chunk; a single one is under None too, for operations that name no chunk."""
    made: dict[int | None, Part] = dict(enumerate(parts))
    return made | {None: parts[0]} if len(parts) == 1 else made
