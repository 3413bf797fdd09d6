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
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from pipesched.diagnostics import Code
from pipesched.language.execution import Halt
from pipesched.model.ops import COMPUTES, OLDEST, RESTORES, Op, Result
from pipesched.model.slices import mirrored

Emission = Callable[..., None]


@dataclass(slots=True)
class Turn:
    """Whose turn it is among the microbatches low .. end of a chunk, for one kind: the smallest that has not run.

    key: that of microbatch 0 of its stage. slices: of the sequences that run backwards, which turns are counted along.
    named: the turns of those that ran before theirs.
    """

    low: int
    end: int
    chunk: int = 0
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

    Or the F whose R or O is, or the O whose L is. of: by chunk and microbatch, how many are missing. slices: of the
    sequences whose last slice has its turn first.
    """

    def __init__(self, chunks: int = 1, slices: int = 1) -> None:
        self.slices = slices
        self.every: OrderedDict[tuple[int, int], int] = OrderedDict()
        alone = chunks == 1
        self.of = {None: self.every} | {chunk: self.every if alone else OrderedDict() for chunk in range(chunks)}
        self.begun = self.twice = False

    def add(self, chunk: int, microbatch: int) -> None:
        """An I runs."""
        entry, mine, every = (chunk, microbatch), self.of[chunk], self.every
        self.begun = True
        if entry in every:
            self.twice = True
            every[entry] = mine[entry] = every[entry] + 1
        else:
            every[entry] = 1
            if mine is not every:
                mine[entry] = 1

    def take(self, chunk: int, microbatch: int) -> None:
        """A W runs, whether its I is pending or not."""
        entry, mine, every = (chunk, microbatch), self.of[chunk], self.every
        if (count := every.get(entry, 0)) > 1:
            every[entry] = mine[entry] = count - 1
        elif count:
            del every[entry]
            mine.pop(entry, None)

    def drained(self, chunk: int | None) -> list[tuple[int, int]]:
        """All W that are missing run."""
        mine, every = self.of[chunk], self.every
        found = [entry for entry, count in mine.items() for _ in range(count)]
        for queue in self.of.values() if mine is every else ():
            queue.clear()
        for entry in mine:
            del every[entry]
        mine.clear()
        return found

    def oldest(self, chunk: int | None) -> tuple[int, int] | None:
        """Chunk and microbatch of the I that has waited longest, or of the last slice of its sequence that waits."""
        for entry in self.of[chunk]:
            return entry if self.slices == 1 else self._last(*entry)
        return None

    def _last(self, chunk: int, microbatch: int) -> tuple[int, int]:
        first = microbatch - microbatch % self.slices
        return next((chunk, i) for i in reversed(range(first, first + self.slices)) if (chunk, i) in self.every)

    def count(self, chunk: int | None) -> int:
        """How many W are missing."""
        return sum(self.of[chunk].values()) if self.twice else len(self.of[chunk])


class Rule(NamedTuple):
    """A line of `greedy`: the next one of a kind and a chunk, where the condition holds."""

    site: int
    op: Op
    chunk: int | None
    when: Callable[[], object] | None


class Emitter:
    """The operations of one rank.

    chunks: (first microbatch, end, stage) of every chunk; limit: how many operations may be written; slices: of a
    sequence, 1 where every microbatch is for itself; letters: those that may be written.
    sites, keys: what was written; second: positions of the second parts of overlap pairs. rules: what follows by a rule
    (`greedy`); holds: by chunk what is held where the rule is at, one `part` of the unit of peaks each.
    """

    def __init__(
        self,
        rank: int,
        chunks: list[tuple[int, int, int]],
        microbatches: int,
        limit: int,
        slices: int = 1,
        letters: Collection[str] = "",
    ) -> None:
        self.rank, self.chunks, self.microbatches, self.limit = rank, chunks, microbatches, limit
        self.sites: list[int] = []
        self.keys: list[int] = []
        self.second: list[int] = []
        self.turns = {result: self._turns(slices if result is Result.GRADIENT else 1) for result in Result}
        known = [op for op in OLDEST if op is Op.W or op.name in letters]
        self.missing = {op: Pending(len(chunks), slices if op in RESTORES else 1) for op in known}
        self.pending = self.missing[Op.W]
        self.then = {op: self._then(op) for op in COMPUTES}
        self.rules: list[Rule] = []
        self.holds, self.part = [0] * len(chunks), Fraction(1)

    def _turns(self, slices: int) -> dict[int | None, Turn]:
        """By chunk; under None, for an operation that names none, where there is one chunk alone."""
        turns: dict[int | None, Turn] = {}
        for chunk, (low, end, stage) in enumerate(self.chunks):
            turns[chunk] = Turn(low, end, chunk, stage * self.microbatches, slices)
        return turns | {None: turns[0]} if len(turns) == 1 else turns

    def _then(self, op: Op) -> list[Callable[[int, int], None]]:
        """The functions to call once one of a kind is written."""
        begun = [missing.add for of, missing in self.missing.items() if OLDEST[of] is op]
        return [self.missing[op].take, *begun] if op in self.missing else [*begun]

    def functions(self) -> dict[str, Callable[..., object]]:
        """The functions that translated programs call, by name."""
        made: dict[str, Callable[..., object]] = {"drain": self._drain, "pair": self._pair, "pending": self._pending}
        made |= {"held": self._held, "greedy": self._greedy}
        for kind in COMPUTES:  # I and B make a gradient first, and take turns
            made |= {kind.name: self._next(kind), f"{kind.name}_at": self._named(kind)}
        return made | {"W": self._weight} | {op.name: self._of_oldest(op) for op in OLDEST if op is not Op.W}

    def _next(self, op: Op) -> Emission:
        """The emission of the next one of a kind. This runs once an operation: everything it touches is local."""
        turns, site_list, key_list = self.turns[op.kind.makes[0]], self.sites.append, self.keys.append
        then, sliced = self.then[op], any(turn.slices > 1 for turn in turns.values())

        def emit(site: int, chunk: int | None = None) -> None:
            try:
                turn = turns[chunk]
            except KeyError:
                raise self._no_chunk(op.name, chunk) from None
            microbatch = turn.next
            if microbatch >= turn.end:
                raise self._past_the_end(op.name, turn)
            turn.next = microbatch + 1
            if turn.named:
                turn.skip()
            if sliced:
                microbatch = mirrored(microbatch, turn.slices)
            site_list(site)
            key_list(turn.key + microbatch)
            if then:
                for call in then:
                    call(turn.chunk, microbatch)

        return emit

    def _named(self, op: Op) -> Emission:
        turns, then = self.turns[op.kind.makes[0]], self.then[op]

        def emit(site: int, microbatch: int, chunk: int | None = None) -> None:
            turn = turns.get(chunk)
            if turn is None:
                raise self._no_chunk(op.name, chunk)
            if not turn.low <= microbatch < turn.end:
                here = f"chunk {turn.chunk} of rank {self.rank} runs {turn.low} .. {turn.end}"
                message = f"{op.name} of microbatch {microbatch}: {here}"
                raise Halt(Code.MICROBATCH_RANGE, message, "names this microbatch")
            if len(self.sites) >= self.limit:
                raise _too_many(self.limit)
            turn.name(microbatch)
            self.sites.append(site)
            self.keys.append(turn.key + microbatch)
            for call in then:
                call(turn.chunk, microbatch)

        return emit

    def _weight(self, site: int, chunk: int | None = None) -> None:
        if not self._oldest(site, chunk):
            raise self._none_pending(f"rank {self.rank}" if chunk is None else f"chunk {chunk} of rank {self.rank}")

    def _of_oldest(self, op: Op) -> Emission:
        """The emission of a kind for the oldest of another that has had none."""
        turns, missing, then = (
            self.turns[op.kind.makes[0]],
            self.missing.get(op, Pending(len(self.chunks))),
            self.then[op],
        )
        name, of = op.name, OLDEST[op].name

        def emit(site: int, chunk: int | None = None) -> None:
            turn = turns.get(chunk)
            if turn is None:
                raise self._no_chunk(name, chunk)
            oldest = missing.oldest(turn.chunk)
            if oldest is None:
                stage = turn.key // self.microbatches
                message = (
                    f"{name}[{turn.chunk}] on rank {self.rank}: every {of} of stage {stage} so far has had its {name}"
                )
                help = f"an {of} comes first, and one {name} for each"
                raise Halt(Code.PAST_THE_END, message, "there is no next microbatch", help)
            self.sites.append(site)
            self.keys.append(turn.key + oldest[1])
            for call in then:
                call(*oldest)

        return emit

    def _pending(self, chunk: int | None = None) -> int:
        self._check(chunk, "W", f"pending({chunk})")
        return self.pending.count(chunk)

    def _held(self, chunk: int | None = None) -> Fraction:
        self._check(chunk, "F", f"held({chunk})")
        return self.part * (sum(self.holds) if chunk is None else self.holds[chunk])

    def _check(self, chunk: int | None, op: str, said: str) -> None:
        if chunk is not None and not 0 <= chunk < len(self.chunks):
            raise self._no_chunk(op, chunk, said)

    def _greedy(self, site: int, letter: str, chunk: int | None, when: Callable[[], object] | None) -> None:
        op = Op[letter]
        if chunk not in self.turns[op.kind.makes[0]] and (chunk is not None or op is not Op.W):
            raise self._no_chunk(letter, chunk)
        self.rules.append(Rule(site, op, chunk, when))

    def upcoming(self, op: Op, chunk: int | None) -> int | None:
        """The key of the next one of a kind, if there is one."""
        turns = self.turns[op.kind.makes[0]]
        if op is Op.W:
            oldest = self.pending.oldest(chunk)
            return None if oldest is None else turns[oldest[0]].key + oldest[1]
        turn = turns[chunk]
        return turn.key + mirrored(turn.next, turn.slices) if turn.next < turn.end else None

    def _drain(self, site: int, chunk: int | None = None) -> None:
        turns = self.turns[Result.WEIGHTS]
        if chunk is not None and chunk not in turns:
            raise self._no_chunk("W", chunk)
        keys = [turns[of].key + microbatch for of, microbatch in self.pending.drained(chunk)]
        self.sites += [site] * len(keys)
        self.keys += keys

    def _oldest(self, site: int, chunk: int | None) -> bool:
        """Runs the oldest pending W of a chunk, or of all; whether there is one."""
        turns = self.turns[Result.WEIGHTS]
        if chunk is not None and chunk not in turns:
            raise self._no_chunk("W", chunk)
        oldest = self.pending.oldest(chunk)
        if oldest is not None:
            self.sites.append(site)
            self.keys.append(turns[oldest[0]].key + oldest[1])
            self.pending.take(*oldest)
        return oldest is not None

    def _pair(self) -> None:
        self.second.append(len(self.sites) - 1)

    def _no_chunk(self, op: str, chunk: int | None, said: str = "") -> Halt:
        count = len(self.chunks)
        if chunk is None and count:
            return Halt(
                Code.AMBIGUOUS_CHUNK,
                f"rank {self.rank} holds {count} chunks: which one is this {op} of?",
                "names no chunk",
                f"write {op}[0] … {op}[{count - 1}]",
            )
        chunk = chunk or 0
        held = "no chunk" if not count else "only chunk 0" if count == 1 else f"chunks 0 .. {count}"
        bare = f"a rank with one stage needs none: write `{op}`, or `{op}({chunk})` for microbatch {chunk}"
        help = bare if count == 1 else f"there are {op}[0] to {op}[{count - 1}]" if count else "give it a stage"
        message = f"{said or f'{op}[{chunk}]'}: rank {self.rank} holds {held}"
        return Halt(Code.CHUNK, message, "there is no such chunk here", f"chunks count from 0; {help}")

    def _past_the_end(self, op: str, turn: Turn) -> Halt:
        return Halt(
            Code.PAST_THE_END,
            f"{op}[{turn.chunk}] on rank {self.rank}: all microbatches {turn.low} .. {turn.end} of stage "
            f"{turn.key // self.microbatches} have had theirs",
            "there is no next microbatch",
            "check the bounds of the loops: they ask for more operations than there are microbatches",
        )

    def _none_pending(self, where: str) -> Halt:
        fused = not self.pending.begun and any(turn.next > turn.low for turn in self.turns[Result.GRADIENT].values())
        letters = "; B is the whole backward here, and what zero-bubble papers call B is I: write `I` for `B`"
        help = "an I must come first" + letters * fused
        return Halt(Code.NO_PENDING_W, f"no W is pending on {where}", "every I has had its W", help)


def _too_many(limit: int) -> Halt:
    return Halt(
        Code.TOO_MANY_OPERATIONS,
        f"a rank writes more than {limit} operations",
        "one too many",
        "--max-ops raises the limit",
    )
