"""What the operations of a rank's program do when they run: they take the next microbatch and are written down.

    F[c], I[c], B[c]   the smallest microbatch of chunk c for which that kind has not run here; I and B are one kind
    W[c]               the oldest I of chunk c whose W is missing;  W: of any chunk;  drain W: all of them
    F[c](i)            microbatch i, which then counts as run

An operation is kept as two integers, its site and stage * microbatches + microbatch; the columns are made at the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pipesched.diagnostics import Code
from pipesched.language.execution import Halt
from pipesched.model.ops import COMPUTES, Result

Emission = Callable[..., None]


@dataclass
class Turn:
    """Whose turn it is: the next microbatch of each chunk for one kind, and those that were named out of turn."""

    next: dict[int, int]
    taken: dict[int, set[int]] = field(default_factory=dict)

    def name(self, chunk: int, microbatch: int) -> None:
        """Count a microbatch as run out of turn."""
        if microbatch > self.next[chunk]:
            self.taken.setdefault(chunk, set()).add(microbatch)
        elif microbatch == self.next[chunk]:
            self.next[chunk] += 1
            self.skip(chunk)

    def skip(self, chunk: int) -> None:
        """Step over the microbatches that were named before their turn."""
        taken = self.taken.get(chunk, set())
        while self.next[chunk] in taken:
            taken.discard(self.next[chunk])
            self.next[chunk] += 1


@dataclass
class Pending:
    """The I whose W is missing, oldest first; one taken out of turn is stepped over when it comes to the front."""

    queue: deque[tuple[int, int]] = field(default_factory=deque)
    taken: dict[tuple[int, int], int] = field(default_factory=dict)

    def take(self, entry: tuple[int, int]) -> None:
        """Take an entry that is in the queue, at whatever place."""
        if self.queue[0] == entry:
            self.queue.popleft()
        else:
            self.taken[entry] = self.taken.get(entry, 0) + 1
        while self.taken and self.queue and self.taken.get(self.queue[0]):
            self.taken[self.queue.popleft()] -= 1


class Emitter:
    """The operations of one rank.

    chunks: (first microbatch, end, stage) of every chunk; limit: how many operations may be written.
    sites, keys: what was written; second: positions of the second parts of overlap pairs.
    """

    def __init__(self, rank: int, chunks: list[tuple[int, int, int]], microbatches: int, limit: int) -> None:
        self.rank, self.chunks, self.microbatches, self.limit = rank, chunks, microbatches, limit
        self.sites: list[int] = []
        self.keys: list[int] = []
        self.second: list[int] = []
        self.turns = {result: Turn({c: low for c, (low, _, _) in enumerate(chunks)}) for result in Result}
        self.pending = [Pending() for _ in chunks]
        self.oldest = Pending()  # those of all chunks
        self.missing: dict[tuple[int, int], int] = {}  # how many W of a chunk and microbatch
        self.split = False  # whether an I has run

    def functions(self) -> dict[str, Callable[..., Any]]:
        """The emission functions by the names that translated programs call."""
        made: dict[str, Callable[..., Any]] = {"drain": self._drain, "pair": self._pair}
        for kind in COMPUTES:  # I and B make a gradient first, and take turns
            op, turn = kind.name, self.turns[kind.kind.makes[0]]
            next_one = self._next(op, turn)
            made |= {op: next_one, f"{op}_only": self._only(op, next_one), f"{op}_at": self._named(op, turn)}
        return made | {"W": self._weight, "W_only": self._any_weight, "W_at": self._named("W", None)}

    def _next(self, op: str, turn: Turn) -> Emission:
        """The emission of the next one of a kind. This runs once an operation: everything it touches is local."""
        upcoming, taken = turn.next, turn.taken
        end = [high for _, high, _ in self.chunks]
        base = [stage * self.microbatches for _, _, stage in self.chunks]
        site_list, key_list = self.sites.append, self.keys.append

        def emit(site: int, chunk: int) -> None:
            try:
                microbatch = upcoming[chunk]
            except KeyError:
                raise self._no_chunk(op, chunk) from None
            if microbatch >= end[chunk]:
                raise self._past_the_end(op, chunk)
            upcoming[chunk] = microbatch + 1
            if taken:
                turn.skip(chunk)
            site_list(site)
            key_list(base[chunk] + microbatch)

        def remembered(site: int, chunk: int) -> None:
            emit(site, chunk)
            self._remember(chunk, self.keys[-1] - base[chunk])

        return remembered if op == "I" else emit

    def _only(self, op: str, emit: Emission) -> Emission:
        def bare(site: int) -> None:
            emit(site, self._single(op))

        return bare

    def _named(self, op: str, turn: Turn | None) -> Emission:
        chunks, site_list, key_list, total = self.chunks, self.sites.append, self.keys.append, self.microbatches

        def emit(site: int, chunk: int | None, microbatch: int) -> None:
            chunk = self._single(op) if chunk is None else chunk
            if not 0 <= chunk < len(chunks):
                raise self._no_chunk(op, chunk)
            low, high, stage = chunks[chunk]
            if not low <= microbatch < high:
                raise Halt(
                    Code.MICROBATCH_RANGE,
                    f"{op} of microbatch {microbatch}: chunk {chunk} of rank {self.rank} runs {low} .. {high}",
                    "names this microbatch",
                )
            if len(self.sites) >= self.limit:
                raise _too_many(self.limit)
            if turn is not None:
                turn.name(chunk, microbatch)
            elif self.missing.get((chunk, microbatch)):
                self._settle(chunk, microbatch)
            site_list(site)
            key_list(stage * total + microbatch)
            if op == "I":
                self._remember(chunk, microbatch)

        return emit

    def _write(self, site: int, chunk: int, microbatch: int) -> None:
        self.sites.append(site)
        self.keys.append(self.chunks[chunk][2] * self.microbatches + microbatch)

    def _remember(self, chunk: int, microbatch: int) -> None:
        self.split = True
        entry = chunk, microbatch
        self.oldest.queue.append(entry)
        self.pending[chunk].queue.append(entry)
        self.missing[entry] = self.missing.get(entry, 0) + 1

    def _settle(self, chunk: int, microbatch: int) -> None:
        """A W runs: no queue has its I any more."""
        entry = chunk, microbatch
        self.missing[entry] -= 1
        self.pending[chunk].take(entry)
        self.oldest.take(entry)

    def _weight(self, site: int, chunk: int) -> None:
        if not 0 <= chunk < len(self.chunks):
            raise self._no_chunk("W", chunk)
        if not self.pending[chunk].queue:
            raise self._none_pending(f"chunk {chunk} of rank {self.rank}")
        microbatch = self.pending[chunk].queue[0][1]
        self._write(site, chunk, microbatch)
        self._settle(chunk, microbatch)

    def _any_weight(self, site: int) -> None:
        if not self.oldest.queue:
            raise self._none_pending(f"rank {self.rank}")
        self._weight(site, self.oldest.queue[0][0])

    def _drain(self, site: int, chunk: int | None) -> None:
        if chunk is None:
            self._drain_all(site)
            return
        if not 0 <= chunk < len(self.chunks):
            raise self._no_chunk("W", chunk)
        while self.pending[chunk].queue:
            self._weight(site, chunk)

    def _drain_all(self, site: int) -> None:
        taken, put, key = self.oldest.taken, self.sites.append, self.keys.append
        for entry in self.oldest.queue:
            if taken and taken.get(entry):
                taken[entry] -= 1
            else:
                put(site)
                key(self.chunks[entry[0]][2] * self.microbatches + entry[1])
        self.oldest, self.pending = Pending(), [Pending() for _ in self.chunks]
        self.missing.clear()

    def _pair(self) -> None:
        self.second.append(len(self.sites) - 1)

    def _single(self, op: str) -> int:
        if len(self.chunks) == 1:
            return 0
        if not self.chunks:
            raise self._no_chunk(op, 0)
        raise Halt(
            Code.AMBIGUOUS_CHUNK,
            f"rank {self.rank} holds {len(self.chunks)} chunks: which one is this {op} of?",
            "names no chunk",
            f"write {op}[0] … {op}[{len(self.chunks) - 1}]",
        )

    def _no_chunk(self, op: str, chunk: int) -> Halt:
        count = len(self.chunks)
        held = "no chunk" if not count else "only chunk 0" if count == 1 else f"chunks 0 .. {count}"
        bare = f"a rank with one stage needs none: write `{op}`, or `{op}({chunk})` for microbatch {chunk}"
        help = bare if count == 1 else f"there are {op}[0] to {op}[{count - 1}]" if count else "give it a stage"
        message = f"{op}[{chunk}]: rank {self.rank} holds {held}"
        return Halt(Code.CHUNK, message, "there is no such chunk here", f"chunks count from 0; {help}")

    def _past_the_end(self, op: str, chunk: int) -> Halt:
        low, high, stage = self.chunks[chunk]
        return Halt(
            Code.PAST_THE_END,
            f"{op}[{chunk}] on rank {self.rank}: all microbatches {low} .. {high} of stage {stage} have had theirs",
            "there is no next microbatch",
            "check the bounds of the loops: they ask for more operations than there are microbatches",
        )

    def _none_pending(self, where: str) -> Halt:
        fused = not self.split and any(
            turn > low for turn, (low, _, _) in zip(self.turns[Result.GRADIENT].next.values(), self.chunks, strict=True)
        )
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
