"""Small random programs, some of which pass and some of which fail.

Each begins as a safe one: messages, exchanges, shifts and SYNCs happen at one global instant after another, with the
computes that make and use them around, and every rank lists its part in that order. Then harm is done: entries change
places with near ones, neighbours are fused into batches, sends or receives get lost. About half of the result
deadlocks, more often under strict than under async.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from math import prod

from pipesched.model.ops import Instruction, Op
from pipesched.model.schedule import Program
from tests.makers.placements import linear
from tests.makers.programs import of_instructions

MOST_PLACES = 800  # where the ranks can stand, all together
MOST_MESSAGES = 7
USERS = {Op.RECV_F: (Op.F,), Op.RECV_B: (Op.I, Op.B)}
WAITS = {Op.SEND_F: Op.WAIT_SEND_F, Op.SEND_B: Op.WAIT_SEND_B}
LOCAL = (Op.F, Op.I, Op.B, Op.W, Op.REDUCE_GRAD, Op.WAIT_REDUCE_GRAD, Op.STEP, Op.UNSHARD, Op.RESHARD)


def random_program(rng: random.Random) -> Program:
    """Return a program of 2 to 4 ranks with about 2 to 10 instructions per rank."""
    while True:
        lists = [whole(instructions) for instructions in _Draft(rng).lists]
        places = prod(len(instructions) + 1 for instructions in lists)
        messages = sum(x.op.send for instructions in lists for x in instructions)
        if places <= MOST_PLACES and messages <= MOST_MESSAGES:
            return program(lists)


def program(lists: list[list[Instruction]]) -> Program:
    return of_instructions(lists, linear(len(lists), 4))


def whole(instructions: list[Instruction]) -> list[Instruction]:
    """Return the same list with torn overlap pairs as two slots."""
    after_compute = [False, *(x.op.compute for x in instructions)]
    return [replace(x, second=x.second and after_compute[i]) for i, x in enumerate(instructions)]


class _Draft:
    """A program in the making."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.ranks = rng.choices((2, 3, 4), (5, 4, 3))[0]
        self.communicators = rng.choices((1, 2), (3, 1))[0]
        self.talk = rng.random()  # how much else than messages there is
        self.groups = 0
        self.lists: list[list[Instruction]] = [[] for _ in range(self.ranks)]
        for _ in range(rng.randint(1, 7)):
            rng.choices((self._message, self._exchange, self._shift, self._sync, self._burst), (12, 2, 1, 1, 1))[0]()
        self._harm()

    def _harm(self) -> None:
        for _ in range(self.rng.choice((0, 1, 1, 2, 3, 5, 8))):
            self._swap()
        self._fuse(self.rng.choice((0, 0, 0, 0.2, 0.5, 1)))
        for harm, chance in ((self._lose, 0.12), (self._redirect, 0.04), (self._to_itself, 0.02)):
            if self.rng.random() < chance:
                harm()

    def _pair(self) -> list[int]:
        """Return two ranks, often the first two, so that messages between the same ranks accumulate."""
        return self.rng.sample(range(2 if self.rng.random() < 0.3 else self.ranks), 2)

    def _ends(self, source: int, target: int, group: int = -1) -> tuple[Instruction, Instruction]:
        """Return a SEND and its RECV; usually of one kind, but any two may meet on a channel."""
        forward = self.rng.random() < 0.5
        same = self.rng.random() < 0.9
        send = Op.SEND_F if forward else Op.SEND_B
        receive = Op.RECV_F if forward == same else Op.RECV_B
        communicator = self.rng.randrange(self.communicators)
        stage, microbatch = self.rng.randrange(2), self.rng.randrange(3)
        return (
            Instruction(send, stage, microbatch, target, group, communicator),
            Instruction(receive, stage, microbatch, source, group, communicator),
        )

    def _message(self, *pair: int) -> None:
        source, target = pair or self._pair()
        send, receive = self._ends(source, target)
        self._chatter(source)
        self.lists[source].append(send)
        self.lists[target].append(receive)
        self._use(target, receive)
        if self.rng.random() < 0.3 * self.talk:
            self.lists[source].append(Instruction(WAITS[send.op], send.stage, send.microbatch))

    def _use(self, rank: int, receive: Instruction) -> None:
        """The compute that consumes the received value, sometimes as the first or second half of an overlap pair."""
        if self.rng.random() > 0.4 + 0.5 * self.talk:
            return
        user = Instruction(self.rng.choice(USERS[receive.op]), receive.stage, receive.microbatch)
        if self.rng.random() < 0.25:
            other = self._compute(Op.F if user.op is not Op.F else Op.B)
            first, second = (user, other) if user.op is Op.F else (other, user)
            self.lists[rank] += [first, replace(second, second=True)]
        else:
            self.lists[rank].append(user)

    def _compute(self, op: Op) -> Instruction:
        return Instruction(op, self.rng.randrange(2), self.rng.randrange(3))

    def _chatter(self, rank: int) -> None:
        if self.rng.random() < 0.3 * self.talk:
            self.lists[rank].append(self._compute(self.rng.choice(LOCAL)))

    def _group(self) -> int:
        self.groups += 1
        return self.groups

    def _exchange(self) -> None:
        """Both directions at once between two ranks: one batch on each, or on one of them only."""
        a, b = self._pair()
        group_a, group_b = self._group(), self._group() if self.rng.random() < 0.8 else -1
        to_b, from_a = self._ends(a, b)
        to_a, from_b = self._ends(b, a)
        for rank, group, ends in ((a, group_a, [to_b, from_b]), (b, group_b, [from_a, to_a])):
            self.rng.shuffle(ends)
            self.lists[rank] += [replace(end, group=group) for end in ends]

    def _shift(self) -> None:
        """Every rank sends to the next one and receives from the previous one, in one batch."""
        group = self._group()
        batches: list[list[Instruction]] = [[] for _ in range(self.ranks)]
        for rank in range(self.ranks):
            send, receive = self._ends(rank, (rank + 1) % self.ranks, group)
            batches[rank].append(send)
            batches[(rank + 1) % self.ranks].append(receive)
        for instructions, batch in zip(self.lists, batches, strict=True):
            instructions += batch

    def _burst(self) -> None:
        """Several messages on one channel, received only after another action of these two ranks."""
        source, target = self._pair()
        ends = [self._ends(source, target) for _ in range(self.rng.randint(2, 4))]
        self.lists[source] += [send for send, _ in ends]
        self.rng.choice((self._message, self._sync))(source, target)
        self.lists[target] += [receive for _, receive in ends]

    def _sync(self, *pair: int) -> None:
        a, b = pair or self._pair()
        stage = self.rng.randrange(2)
        self.lists[a].append(Instruction(Op.SYNC, stage, peer=b))
        self.lists[b].append(Instruction(Op.SYNC, stage, peer=a))

    def _somewhere(self, wanted: Callable[[Instruction], bool]) -> tuple[list[Instruction], int] | None:
        """Return a rank's list and a place in it."""
        places = [(x, i) for x in self.lists for i in range(len(x)) if wanted(x[i])]
        return self.rng.choice(places) if places else None

    def _swap(self) -> None:
        """Swap two near entries."""
        if found := self._somewhere(lambda _: True):
            instructions, i = found
            j = min(i + self.rng.randint(1, 3), len(instructions) - 1)
            instructions[i], instructions[j] = instructions[j], instructions[i]

    def _fuse(self, chance: float) -> None:
        """Merge neighbours into batches."""
        for instructions in self.lists:
            for i in range(1, len(instructions)):
                before, after = instructions[i - 1], instructions[i]
                if _message(before) and _message(after) and self.rng.random() < chance:
                    group = before.group if before.group >= 0 else self._group()
                    instructions[i - 1 : i + 1] = [replace(before, group=group), replace(after, group=group)]

    def _lose(self) -> None:
        if found := self._somewhere(lambda x: _message(x) or x.op is Op.SYNC):
            instructions, i = found
            del instructions[i]

    def _redirect(self) -> None:
        """Change one end, or a SYNC, to another communicator, or to a rank that does not exist."""
        if found := self._somewhere(lambda x: _message(x) or x.op is Op.SYNC):
            instructions, i = found
            elsewhere = self.rng.choice((replace(instructions[i], communicator=2), replace(instructions[i], peer=9)))
            instructions[i] = elsewhere

    def _to_itself(self) -> None:
        """A rank sends itself a message, outside of any batch."""
        rank = self.rng.randrange(self.ranks)
        send, receive = self._ends(rank, rank)
        at = self.rng.randint(0, len(self.lists[rank]))
        ends = [send, receive]
        self.rng.shuffle(ends)
        self.lists[rank][at:at] = ends


def _message(x: Instruction) -> bool:
    return x.op.send or x.op.receive


def features(program: Program) -> set[str]:
    """Return the features of a program, for a report of the programs tried."""
    lists = [program.instructions(rank) for rank in range(program.ranks)]
    found = {f"{program.ranks} ranks"}
    messages = [(rank, x) for rank, instructions in enumerate(lists) for x in instructions if _message(x)]
    directions = {(rank, x.peer) if x.op.send else (x.peer, rank) for rank, x in messages}
    if any(a != b and (b, a) in directions for a, b in directions):
        found.add("both directions")
    if len({x.communicator for _, x in messages}) > 1:
        found.add("communicators")
    if any(rank == x.peer for rank, x in messages):
        found.add("to itself")
    if _unmatched(messages):
        found.add("missing partner")
    for instructions in lists:
        found |= _local_features(instructions)
    return found


def _unmatched(messages: list[tuple[int, Instruction]]) -> bool:
    balance: dict[tuple[int, int, int], int] = {}
    for rank, x in messages:
        channel = (x.communicator, rank, x.peer) if x.op.send else (x.communicator, x.peer, rank)
        balance[channel] = balance.get(channel, 0) + (1 if x.op.send else -1)
    return any(balance.values())


def _local_features(instructions: list[Instruction]) -> set[str]:
    """Return the features of one rank's list."""
    found = {"SYNC"} if any(x.op is Op.SYNC for x in instructions) else set()
    for i, x in enumerate(instructions):
        earlier = {(y.op, y.stage, y.microbatch) for y in instructions[:i]}
        before = instructions[i - 1] if i else x
        if x.op.compute and any((op, x.stage, x.microbatch) in earlier for op, by in USERS.items() if x.op in by):
            found.add("compute waits")
        if any((op, x.stage, x.microbatch) in earlier for op, wait in WAITS.items() if x.op is wait):
            found.add("WAIT_SEND")
        if x.second:
            found.add("overlap")
        if i and _message(x) and _message(before) and x.group == before.group >= 0:
            found |= {"batch"} | ({"batch over several peers"} if x.peer != before.peer else set())
    return found
