"""The communication models as machines: which steps does a state allow?

    strict       rendezvous: all that is linked by messages is left at one instant
    buffered(k)  a SEND waits only while k messages of its channel are on the way
    one-stream   SENDs and RECVs are posted; those of a rank complete in posting order
    pair-stream  posted; in order only among those of a rank with the same peer
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
    """A model of communication at work on one script."""

    script: Script

    def start(self) -> State: ...
    def steps(self, state: State) -> list[State]: ...
    def at(self, state: State) -> At: ...


def machine(script: Script, model: str) -> Machine:
    """The machine for a model named as on the command line: ``strict``, ``buffered(2)``, ``async``, ..."""
    if model == "strict":
        return Strict(script)
    if model.startswith("buffered("):
        capacity = model.removeprefix("buffered(").removesuffix(")")
        return Buffered(script, math.inf if capacity == "inf" else int(capacity))
    if model in ("one-stream", "pair-stream", "async"):
        return Posted(script, model)
    raise ValueError(model)


def _moved(at: At, ranks: Sequence[int]) -> At:
    """These ranks have gone to their next line."""
    return tuple([n + 1 if rank in ranks else n for rank, n in enumerate(at)])


def _met(script: Script, at: At, rank: int) -> list[list[int]]:
    """The two ranks of the SYNC at which this one stands, if both are there; named by the lower of them."""
    other = script.other_sync.get((rank, at[rank]))
    return [[rank, other[0]]] if other and rank < other[0] and at[other[0]] == other[1] else []


class Strict:
    """Rendezvous: lines linked by messages are left at one instant, when every one of their ranks stands there."""

    def __init__(self, script: Script) -> None:
        self.script = script
        linked = {spot: script.linked(spot) for spot in set(script.spot.values())}
        self.meeting = {spot: sorted(spots) for spot, spots in linked.items() if not script.lonely(spots)}

    def start(self) -> State:
        return (0,) * len(self.script.lines)

    def at(self, state: State) -> At:
        return state  # type: ignore[no-any-return]

    def steps(self, state: State) -> list[State]:
        return [_moved(state, ranks) for rank in range(len(state)) for ranks in self._leaving(state, rank)]

    def _leaving(self, at: At, rank: int) -> list[list[int]]:
        """The ranks that can leave their lines together, this one the lowest of them."""
        lines, n = self.script.lines[rank], at[rank]
        if n == len(lines):
            return []
        if lines[n].sync:
            return _met(self.script, at, rank)
        if not lines[n].ends:
            return [[rank]]
        meeting = self.meeting.get((rank, n), [])
        together = meeting and meeting[0][0] == rank and all(at[r] == line for r, line in meeting)
        return [[r for r, _ in meeting]] if together else []


@dataclass(frozen=True)
class Member:
    """A SEND or RECV of a batch (a lone one is a batch of one); `after`: the members before it on its channel.

    `lonely`: it has no partner and never completes, not even a SEND to which a slot is free.
    """

    bit: int
    channel: int
    send: bool
    after: int
    lonely: bool


class Buffered:
    """A SEND waits only while k messages of its channel are on the way; members of a batch go on independently.

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
        """One member is done; with the last one, the line."""
        at, done, flying = state
        count = flying[member.channel] + (1 if member.send else -1)
        flying = (*flying[: member.channel], count, *flying[member.channel + 1 :])
        members = done[rank] | member.bit
        if members == (1 << len(self.members[rank][at[rank]])) - 1:
            at, members = _moved(at, [rank]), 0
        return at, (*done[:rank], members, *done[rank + 1 :]), flying


@dataclass(frozen=True)
class Transfer:
    """What completes at one instant: when its lines are posted, and the transfers before it (a bit each) complete."""

    lines: tuple[Spot, ...]
    before: int


class Posted:
    """SENDs and RECVs are posted and never hold up the list; who needs one waits for it. `order` is the stream model.

    State: the line of each rank; the transfers that are complete, a bit each.
    """

    def __init__(self, script: Script, order: str) -> None:
        self.script = script
        self.order = order
        groups = self._groups()
        self.bit = {end: 1 << i for i, ends in enumerate(groups) for end in ends}
        possible = [ends for ends in groups if all(end in script.partner for end in ends)]
        self.transfers = {self.bit[min(ends)]: self._transfer(ends) for ends in possible}
        self.needs = [[self._bits(line.awaits) for line in lines] for lines in script.lines]

    def _groups(self) -> list[set[End]]:
        """The ends that complete together: one message, or under a stream model all that is linked by messages."""
        groups: dict[End, set[End]] = {}
        for end, spot in self.script.spot.items():
            message = {end, self.script.partner.get(end, end)}
            linked = {e for rank, n in self.script.linked(spot) for e in self.script.lines[rank][n].ends}
            group = message if self.order == "async" else linked
            groups[min(group)] = group
        return list(groups.values())

    def _bits(self, ends: Sequence[End]) -> int:
        return sum({self.bit[end] for end in ends})

    def _transfer(self, ends: set[End]) -> Transfer:
        spots = {self.script.spot[end] for end in ends}
        earlier = [end for spot in spots for end in self._earlier(spot)]
        return Transfer(tuple(sorted(spots)), self._bits(earlier))

    def _earlier(self, spot: Spot) -> list[End]:
        """The ends in earlier lines of this rank that share a stream with this line."""
        rank, n = spot
        lines = self.script.lines[rank]
        return [e for line in lines[:n] if self._streams(line.ends) & self._streams(lines[n].ends) for e in line.ends]

    def _streams(self, ends: Sequence[End]) -> set[int]:
        match self.order:
            case "one-stream":
                return {0} if ends else set()
            case "pair-stream":
                return {self.script.instruction(end).peer for end in ends}
            case _:
                return set()

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
        """The ranks that can go to their next lines together, this one the lowest of them."""
        at, complete = state
        lines, n = self.script.lines[rank], at[rank]
        if n == len(lines):
            return []
        if lines[n].sync:
            return _met(self.script, at, rank)
        return [[rank]] if self.needs[rank][n] & ~complete == 0 else []
