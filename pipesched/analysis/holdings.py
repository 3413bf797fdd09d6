"""The memory of a rank, derived from its own order: activations and message buffers.

The activations that a rank holds depend only on the order of its own operations: they are a running sum over that list,
exact for any timing. Under a rule of `model.release`, an operation adds:

    F  +1      I  -at_input      W  -at_weight      B  -1          times the size of its stage (`Release.change`)

F takes memory at its start and the other kinds free it at their end, so in an overlap pair the F counts before the B.
If no backward follows (on frozen stages without a trained stage before them, and in forward-only schedules), no
activation is kept: an F frees its memory at its end. The I of another frozen stage frees everything. If an R follows
for the same stage and microbatch, the F frees all but tK at its end, and the R takes that amount again at its start. An
O frees everything at its end, host memory holds it until the L, and the L takes it again at its start. The unit is one
microbatch through 1/p of the model: an even stage counts as ranks / stages, any other stage as tM times that.
Parameters, gradients of parameters, optimizer states and workspace are not counted. Message buffers also follow list
order, not a clock:

    RECV_F0  RECV_F1  F0  RECV_F2  F1  F2        received but not yet used      1 2 1 2 1 0
    F0  F1  SEND_F0  F2  SEND_F1  SEND_F2        made but not yet sent          1 2 1 2 1 0

A message is used by the F, I or B of its stage and microbatch, and made by the compute operation after which it is
sent. Lowering sends a message as soon as it is made and receives it as soon as it is sent, so the number of messages on
a rank follows from the times of the operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from math import lcm

import numpy as np

from pipesched.diagnostics import Code, fail
from pipesched.model.columns import Bools, Ints, among, first_of, makes, nearest, running_sum
from pipesched.model.grid import Grid, spread
from pipesched.model.numbers import over
from pipesched.model.ops import BACKWARDS, COMPUTES, COPIES, HOLDING, MAKERS, RECEIVES, SENDS, USERS, Op, Result
from pipesched.model.release import Release
from pipesched.model.schedule import Program, Schedule
from pipesched.support.record import Record


class Memory(Record):
    """The memory of a schedule. held: the memory while each F runs, and after every other operation. kept: the memory
    after every operation; less than `held` for an F that frees memory at its end. Both are multiples of `part`, a
    fraction of the unit. peak_at: for each rank, the first operation at which it holds the most, -1 without operations.
    sizes: the memory that an F of each stage and microbatch holds, as multiples of ranks / stages. host: for each rank,
    the most that host memory holds at one time, in the unit; None if nothing is offloaded.
    """

    schedule: Schedule
    release: Release
    held: Ints
    kept: Ints
    part: Fraction
    peak_at: tuple[int, ...]
    sizes: Grid
    host: tuple[Fraction, ...] | None = None

    @cached_property
    def peak(self) -> tuple[Fraction, ...]:
        """For each rank, the largest amount of live activations, in the unit."""
        top, bottom = self.part.numerator, self.part.denominator
        return tuple(over(max(int(self.held[i]), 0) * top if i >= 0 else 0, bottom) for i in self.peak_at)

    def at(self, index: int) -> Fraction:
        """Return the activations that the operation's rank holds after it (for an F, from its start on)."""
        return int(self.held[index]) * self.part

    def first_over(self, rank: int, cap: Fraction) -> int:
        """Return the first operation of a rank at which more than `cap` is held, or -1."""
        low, high = int(self.schedule.start[rank]), int(self.schedule.start[rank + 1])
        over = np.flatnonzero(self.held[low:high] > int(cap / self.part // 1))
        return low + int(over[0]) if len(over) else -1

    def live(self, index: int) -> list[tuple[int, int]]:
        """Return the (stage, microbatch) of each activation held when the operation runs, oldest first."""
        here = slice(int(self.schedule.start[self.schedule.rank[index]]), index + 1)
        change = np.diff(self.kept[here], prepend=0)
        change[-1] += self.held[index] - self.kept[index]
        left: dict[tuple[int, int], int] = {}
        keys = zip(self.schedule.stage[here].tolist(), self.schedule.microbatch[here].tolist(), strict=True)
        for key, parts in zip(keys, change.tolist(), strict=True):
            left[key] = left.get(key, 0) + parts
        return [key for key, parts in left.items() if parts > 0]


@lru_cache(maxsize=64)
def _shares(release: Release) -> tuple[int, Ints, Ints]:
    """Return the number of equal parts of an activation, and the number of parts that each kind takes or frees on
    trained and on other stages, both of shape (computes, 1).
    """
    parts = lcm(*(release.change(op).denominator for op in COMPUTES))
    trained, frozen = ([[int(release.change(op, trained=t) * parts)] for op in COMPUTES] for t in (True, False))
    return parts, np.array(trained), np.array(frozen)


def memory(
    schedule: Schedule,
    release: Release,
    sizes: Sequence[Fraction] | Grid | None = None,
    small: Sequence[Fraction] | Grid | None = None,
) -> Memory:
    """Return the running sum of memory on every rank; O(operations).

    sizes: the memory that one F holds, as multiples of ranks / stages, by stage, shape (S,), or by stage and
    microbatch; by default 1. small: likewise, the memory that a recomputed F keeps until its R; by default 0.

    Raises:
        PipeschedError: PS222: sizes and shares are too fine or too large for sums in 64 bits.
    """
    sizes = _grid((Fraction(1),) * schedule.stages if sizes is None else sizes)
    forward, again = _run_again(schedule)
    small = _grid((Fraction(0),) * schedule.stages if small is None or not len(again) else small)
    shares, trained, frozen = _shares(release)
    scale = lcm(sizes.scale, small.scale)
    parts = shares * scale
    if int(abs(trained).max()) * (scale // sizes.scale) * sizes.most_whole * max(len(schedule), 1) >= 2**62:
        raise fail(Code.COSTS, "the amounts of memory exceed 64 bits", help="use fewer digits in M and --release")
    size, stage = _amounts(schedule, sizes, scale), nearest(schedule.stage, schedule.stages)
    table, keeps = np.where(schedule.placement.wants[Result.WEIGHTS], trained, frozen), schedule.keeps
    after = (table * keeps)[schedule.op, stage] * size
    more = None if keeps.all() else (np.maximum(table, 0) * ~keeps)[schedule.op, stage] * size
    if len(again):
        left = np.broadcast_to(_amounts(schedule, small, scale) * shares, len(schedule))
        if (left[forward] > after[forward]).any():
            raise fail(Code.COSTS, "cost K exceeds M: an F would keep more for its R than it holds", help=_SMALL)
        more = np.zeros(len(schedule), dtype=np.int64) if more is None else more
        more[forward], after[forward] = after[forward] - left[forward], left[forward]
        after[again] = -left[again]
    part, host = Fraction(schedule.ranks, schedule.stages) / parts, None
    if schedule.has(HOLDING):
        inside = _kept_of(schedule)
        if schedule.has(_ADDED):  # a backward frees these with what its F took
            places, key = np.flatnonzero(inside), schedule.key()
            count = np.bincount(key[places], among(schedule.op[places], _ADDED))
            back = places[among(schedule.op[places], BACKWARDS)]
            after[back] *= 1 + count[key[back]].astype(np.int64)
        moved = np.where(inside, _HOLDS[schedule.op] * size * shares, 0)
        after = after + moved
        if (copied := among(schedule.op, COPIES)).any():
            host = tuple(x * part for x in _largest(running_sum(-moved * copied, schedule.start), schedule.start))
    kept = running_sum(after, schedule.start)
    held = kept if more is None else kept + more
    return Memory(schedule, release, held, kept, part, peak_at=_tops(held, schedule.start), sizes=sizes, host=host)


def _grid(amounts: Sequence[Fraction] | Grid) -> Grid:
    return amounts if isinstance(amounts, Grid) else spread(amounts)


def _amounts(schedule: Schedule, amounts: Grid, scale: int) -> Ints:
    """Return each operation's amount in units of 1 / scale; out-of-range indices count as the nearest one."""
    whole = amounts.whole * (scale // amounts.scale)
    if (whole == whole[:1, :1]).all():
        return np.asarray(whole[0, 0])
    columns = zip((schedule.stage, schedule.microbatch), whole.shape, strict=True)
    return np.asarray(whole[tuple(nearest(*of) for of in columns)])


def _tops(total: Ints, start: Ints) -> tuple[int, ...]:
    """Return, for each rank, the first entry at which its peak is reached, -1 for a rank without entries."""
    ends = pairwise(start.tolist())
    return tuple(low + int(total[low:high].argmax()) if high > low else -1 for low, high in ends)


def _largest(total: Ints, start: Ints) -> tuple[int, ...]:
    """Return the peak of each rank, at least 0."""
    return tuple(int(total[low:high].max(initial=0)) for low, high in pairwise(start.tolist()))


_HOLDS = np.array([op.kind.holds for op in COMPUTES], dtype=np.int64)
_ADDED = [op for op in HOLDING if not op.copy and op not in MAKERS[Result.RECOMPUTED]]
"""The kinds that take new memory, as opposed to memory that the F freed."""
_SMALL = "K is the part of M that an F keeps until its R, such as its input"


def _run_again(schedule: Schedule) -> tuple[Ints, Ints]:
    """Return the indices of the F that are recomputed, and of the R, on stages that keep activations."""
    if not schedule.has(MAKERS[Result.RECOMPUTED]):
        return schedule.start[:0], schedule.start[:0]
    inside, key = _kept_of(schedule), schedule.key()
    again, forward = (np.flatnonzero(inside & makes(schedule.op, x)) for x in (Result.RECOMPUTED, Result.ACTIVATION))
    return forward[np.isin(key[forward], key[again])], again


def _kept_of(schedule: Schedule) -> Bools:
    """Return a mask of the operations that are in range and whose stage keeps activations."""
    stage, microbatch = schedule.stage, schedule.microbatch
    inside = (stage >= 0) & (stage < schedule.stages) & (microbatch >= 0) & (microbatch < schedule.microbatches)
    return np.asarray(inside & schedule.keeps[np.where(inside, stage, 0)])


class InHand(Record):
    """For each rank, the largest number of buffered messages, and the first instruction that reaches it, or -1."""

    most: tuple[int, ...]
    at: tuple[int, ...]


class Buffers(Record):
    """Buffered messages of a program. received: messages received but not yet used. unsent: messages made but not yet
    sent.
    """

    received: InHand
    unsent: InHand


def buffers(program: Program) -> Buffers:
    """Return the buffers that a program needs; O(instructions). A message that is never used is held until the end."""
    received, unsent = in_hand(program, np.ones(len(program), dtype=np.int64))
    return Buffers(_most(program, received), _most(program, unsent))


def in_hand(program: Program, size: Ints) -> tuple[Ints, Ints]:
    """Return how each instruction changes the number of messages received but not yet used, and made but not yet sent.

    size: the size of each instruction's message.
    """
    received, unsent = (np.zeros(len(program), dtype=np.int64) for _ in range(2))
    for op in [op for op in (*SENDS, *RECEIVES) if not op.kind.shape]:
        computes = (MAKERS if op.send else USERS)[op.result]
        message = np.flatnonzero(program.op == op)
        compute = _first(program, computes, message)
        if op.receive:
            used = compute > message
            received[message] += size[message]
            np.subtract.at(received, compute[used], size[message[used]])
        else:
            made = (compute >= 0) & (compute < message)
            np.add.at(unsent, compute[made], size[message[made]])
            unsent[message[made]] -= size[message[made]]
    return received, unsent


def _first(program: Program, computes: tuple[Op, ...], message: Ints) -> Ints:
    """Return, for each message, the first of these operations with its stage and microbatch on its rank, or -1."""
    at = np.flatnonzero(np.isin(program.op, computes))
    wide = int(program.microbatch.max(initial=0)) + 2
    high = int(program.stage.max(initial=0)) + 2

    def key(index: Ints) -> Ints:
        home = program.rank[index].astype(np.int64) * high + program.stage[index] + 1
        return np.asarray(home * wide + program.microbatch[index] + 1)

    return first_of(key(at), at, key(message), -1)


def _most(program: Program, change: Ints) -> InHand:
    total = running_sum(change, program.start)
    most = _largest(total, program.start)
    return InHand(most, tuple(at if x else -1 for at, x in zip(_tops(total, program.start), most, strict=True)))
