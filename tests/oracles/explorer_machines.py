"""The communication models as state machines: the steps that are possible in a state.

    strict       rendezvous: a message goes over when both of its ranks stand at a line that it is in
    buffered(k)  a SEND waits only while k messages of its channel are on the way
    one-stream   SENDs and RECVs are posted; a rank has a queue for each communicator
    pair-stream  posted; a queue for each communicator and peer
    async        posted; no order

A state is immutable and says where each rank stands, and what is under way. A machine never judges: it lists steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from tests.oracles.explorer_script import End, Script, Spot

State: TypeAlias = Any  # each machine has its own, hashable
At: TypeAlias = tuple[int, ...]  # the line at which each rank stands


class Machine(Protocol):
    """A communication model that runs a script."""

    script: Script

    def start(self) -> State: ...
    def steps(self, state: State) -> list[State]: ...
    def at(self, state: State) -> At: ...


def machine(script: Script, model: str) -> Machine:
    """Return the machine for a model named as on the command line: ``strict``, ``buffered(2)``, ``async``, ..."""
    if model == "strict":
        return Strict(script)
    if model.startswith("buffered("):
        capacity = model.removeprefix("buffered(").removesuffix(")")
        return Buffered(script, math.inf if capacity == "inf" else int(capacity))
    if model in ("one-stream", "pair-stream", "async"):
        return Posted(script, model)
    raise ValueError(model)


def _moved(at: At, ranks: Sequence[int]) -> At:
    """Move these ranks to their next line."""
    return tuple([n + 1 if rank in ranks else n for rank, n in enumerate(at)])


def _met(script: Script, at: At, rank: int) -> list[list[int]]:
    """Return the two ranks of the SYNC at which this one is, if both are there; named by the lower of them."""
    other = script.other_sync.get((rank, at[rank]))
    return [[rank, other[0]]] if other and rank < other[0] and at[other[0]] == other[1] else []


class Strict:
    """Rendezvous: messages complete one at a time between ranks at their lines; a line is left when none of its
    messages is missing.

    State: the line of each rank; the messages that are over, a bit each.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.pairs = [(script.spot[a], script.spot[b]) for a, b in script.messages()]
        bit = {end: 1 << i for i, pair in enumerate(script.messages()) for end in pair}
        never = 1 << len(self.pairs)  # messages without a partner
        self.needs = [[sum(bit.get(end, never) for end in ln.ends) for ln in lines] for lines in script.lines]

    def start(self) -> State:
        return (0,) * len(self.script.lines), 0

    def at(self, state: State) -> At:
        return state[0]  # type: ignore[no-any-return]

    def steps(self, state: State) -> list[State]:
        at, over = state
        moved = [(_moved(at, ranks), over) for rank in range(len(at)) for ranks in self._leaving(state, rank)]
        meeting = [
            (at, over | 1 << i)
            for i, spots in enumerate(self.pairs)
            if not over >> i & 1 and all(at[rank] == line for rank, line in spots)
        ]
        return moved + meeting

    def _leaving(self, state: State, rank: int) -> list[list[int]]:
        """Return the ranks that can leave their lines together, this one the lowest of them."""
        at, over = state
        lines, n = self.script.lines[rank], at[rank]
        if n == len(lines):
            return []
        if lines[n].sync:
            return _met(self.script, at, rank)
        return [[rank]] if self.needs[rank][n] & ~over == 0 else []


@dataclass(frozen=True)
class Member:
    """A SEND or RECV of a batch (a single one is a batch of one); `after`: the members before it on its channel.

    `lonely`: it has no partner and never completes, not even a SEND to which a slot is free.
    """

    bit: int
    channel: int
    send: bool
    after: int
    lonely: bool


class Buffered:
    """A SEND waits only while k messages of its channel are on the way; members of a batch progress independently.

    State: the line of each rank; which members of that line are done, a bit each; messages on the way, by channel.
    """

    def __init__(self, script: Script, capacity: float) -> None:
        self.script = script
        self.capacity = capacity
        self.channels = sorted(set(script.channel.values()))
        self.members = [[self._members(line.ends) for line in lines] for lines in script.lines]

    def _members(self, ends: Sequence[End]) -> list[Member]:
        channels = [self.channels.index(self.script.channel[end]) for end in ends]
        after = [sum(1 << j for j in range(i) if channels[j] == channels[i]) for i in range(len(ends))]
        lonely = [end not in self.script.partner for end in ends]
        return [Member(1 << i, channels[i], self.script.sends(e), after[i], lonely[i]) for i, e in enumerate(ends)]

    def start(self) -> State:
        ranks = len(self.script.lines)
        return (0,) * ranks, (0,) * ranks, (0,) * len(self.channels)

    def at(self, state: State) -> At:
        return state[0]  # type: ignore[no-any-return]

    def steps(self, state: State) -> list[State]:
        return [new for rank in range(len(state[0])) for new in self._from(state, rank)]

    def _from(self, state: State, rank: int) -> Iterator[State]:
        at, done, flying = state
        lines, n = self.script.lines[rank], at[rank]
        if n == len(lines):
            return
        if lines[n].sync:
            yield from ((_moved(at, ranks), done, flying) for ranks in _met(self.script, at, rank))
        elif not lines[n].ends:
            yield _moved(at, [rank]), done, flying
        for member in self.members[rank][n]:
            if self._can(member, done[rank], flying[member.channel]):
                yield self._done(state, rank, member)

    def _can(self, member: Member, done: int, flying: int) -> bool:
        in_turn = not member.lonely and not done & member.bit and member.after & ~done == 0
        return in_turn and (flying < self.capacity if member.send else flying > 0)

    def _done(self, state: State, rank: int, member: Member) -> State:
        """Return the complete one member; with the last one, the line."""
        at, done, flying = state
        count = flying[member.channel] + (1 if member.send else -1)
        flying = (*flying[: member.channel], count, *flying[member.channel + 1 :])
        members = done[rank] | member.bit
        if members == (1 << len(self.members[rank][at[rank]])) - 1:
            at, members = _moved(at, [rank]), 0
        return at, (*done[:rank], members, *done[rank + 1 :]), flying


@dataclass(frozen=True)
class Transfer:
    """A message: it completes when its two lines are posted, and the earlier ones in both queues (a bit each) are
    complete.
    """

    lines: tuple[Spot, ...]
    before: int


class Posted:
    """SENDs and RECVs are posted and never block the list; their users wait for them. `order` is the stream model.

    A batch's messages in one queue run in any order, once all before the batch are complete; a consumer of one waits
    for all. State: the line of each rank; the messages that are over, a bit each.
    """

    def __init__(self, script: Script, order: str) -> None:
        self.script = script
        self.order = order
        lone = sorted(end for end in script.spot if end not in script.partner)  # they have a bit, and are never over
        self.bit = {end: 1 << i for i, ends in enumerate([*script.messages(), *((x,) for x in lone)]) for end in ends}
        self.transfers = {self.bit[pair[0]]: self._transfer(pair) for pair in script.messages()}
        self.needs = [[self._bits(self._whole(line.awaits)) for line in lines] for lines in script.lines]

    def _whole(self, ends: Sequence[End]) -> list[End]:
        """Return these messages, with the others of their batch and queue."""
        return [e for end in ends for e in self._batch(end) if e == end or self._queue(e) & self._queue(end)]

    def _batch(self, end: End) -> Sequence[End]:
        rank, n = self.script.spot[end]
        return self.script.lines[rank][n].ends

    def _bits(self, ends: Sequence[End]) -> int:
        return sum({self.bit[end] for end in ends})

    def _transfer(self, pair: tuple[End, End]) -> Transfer:
        before = [earlier for end in pair for earlier in self._earlier(end)]
        return Transfer(tuple(self.script.spot[end] for end in pair), self._bits(before))

    def _earlier(self, end: End) -> list[End]:
        """Return the messages of an earlier line of this rank in the same queue."""
        rank, n = self.script.spot[end]
        return [e for line in self.script.lines[rank][:n] for e in line.ends if self._queue(e) & self._queue(end)]

    def _queue(self, end: End) -> set[tuple[int, ...]]:
        """Return the queue of a SEND or RECV on its rank; none without an order."""
        x = self.script.instruction(end)
        keys = {"one-stream": {(x.communicator,)}, "pair-stream": {(x.communicator, x.peer)}}
        return keys.get(self.order, set())

    def start(self) -> State:
        return (0,) * len(self.script.lines), 0

    def at(self, state: State) -> At:
        return state[0]  # type: ignore[no-any-return]

    def steps(self, state: State) -> list[State]:
        at, complete = state
        moved = [(_moved(at, ranks), complete) for rank in range(len(at)) for ranks in self._going(state, rank)]
        return moved + [(at, complete | bit) for bit in self.transfers if self._completes(bit, state)]

    def _completes(self, bit: int, state: State) -> bool:
        at, complete = state
        transfer = self.transfers[bit]
        in_turn = not complete & bit and transfer.before & ~complete == 0
        return in_turn and all(at[rank] > line for rank, line in transfer.lines)

    def _going(self, state: State, rank: int) -> list[list[int]]:
        """Return the ranks that can go to their next lines together, this one the lowest of them."""
        at, complete = state
        lines, n = self.script.lines[rank], at[rank]
        if n == len(lines):
            return []
        if lines[n].sync:
            return _met(self.script, at, rank)
        return [[rank]] if self.needs[rank][n] & ~complete == 0 else []
