"""A rank holds a bounded number of message buffers, posts messages in the expected order, and measures waits
correctly."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pipesched.analysis.communication import ASYNC
from pipesched.analysis.pairing import pair
from pipesched.analysis.termination import holds
from pipesched.model.schedule import Program
from pipesched.runtime import Guard
from pipesched.runtime.execute import recorder
from pipesched.runtime.execute import transport as channels
from pipesched.runtime.execute.messages import Message, Tags
from pipesched.runtime.execute.transport import Channels
from pipesched.stream import Instruction, Stream
from tests.makers.programs import of_instructions
from tests.makers.random_programs import USERS, random_program
from tests.runtime import buffers
from tests.runtime.harness import Ranks, ranks_of
from tests.runtime.streams import stream_of

EARLY = 2


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with ranks_of(4) as made:
        yield made


@pytest.mark.parametrize(("name", "early"), [("1f1b", EARLY), ("zb_v", EARLY), ("1f1b", 0)])
def test_buffers_are_bounded(ranks: Ranks, name: str, early: int) -> None:
    """At p = 2, m = 64, a rank holds at any time at most `early` receives beyond its position in the list.

    After a while it holds only those sent messages that the other rank cannot have received: those without a receive
    when it has run as far as it can.
    """
    stream = stream_of(name, p=2, m=64)
    bounds = [unreceived(stream, rank, early) for rank in (0, 1)]
    assert max(count.total() for rank in bounds for count in rank) <= 4
    found = ranks.run(2, _held, stream, early, bounds)
    for rank, result in enumerate(found):
        own = listed(stream, rank)
        for op in ("RECV_F", "RECV_B"):
            assert result["beyond"][op] <= early, (rank, op)
            assert result["most"][op] <= own[op] + early, (rank, op)
            assert own[op] <= 2, (rank, op)
        assert result["excess"] == result["left"] == 0, rank
        assert result["error"] <= 1e-12, rank


def _held(rank: int, stream: Stream, early: int, bounds: list[list[Counter[str]]]) -> dict[str, Any]:
    return buffers.held(rank, stream, early, bounds[rank])


def listed(stream: Stream, rank: int) -> Counter[str]:
    """Return the most receives that a list has reached and not yet used, by name."""
    now, most = Counter[str](), Counter[str]()
    for x in stream.ranks[rank]:
        now[x.op] += 1
        now.subtract(buffers.uses(stream, rank, x))
        most |= now
    return most


def unreceived(stream: Stream, rank: int, early: int) -> list[Counter[str]]:
    """Return the after each instruction of a rank: its sends for which the other ranks, which run on, have no receive
    yet."""
    place = dict.fromkeys(range(len(stream.ranks)), 0)
    sent: set[tuple[str, int, int]] = set()
    found = []
    for index in range(len(stream.ranks[rank])):
        _send(stream.ranks[rank][index], sent)
        for other in place.keys() - {rank}:
            while place[other] < len(stream.ranks[other]) and _can(stream, other, place[other], sent):
                _send(stream.ranks[other][place[other]], sent)
                place[other] += 1
        ready = {label for other in place.keys() - {rank} for label in _received(stream, other, place[other], early)}
        mine = [x for x in stream.ranks[rank][: index + 1] if x.op.startswith("SEND")]
        found.append(Counter(x.op for x in mine if _label(x) not in ready))
    return found


def _label(x: Instruction) -> tuple[str, int, int]:
    """Return a message: kind, the stage that makes it, microbatch."""
    return x.op[-1], x.stage + {"RECV_F": -1, "RECV_B": 1}.get(x.op, 0), x.microbatch


def _send(x: Instruction, sent: set[tuple[str, int, int]]) -> None:
    if x.op.startswith("SEND"):
        sent.add(_label(x))


def _can(stream: Stream, rank: int, place: int, sent: set[tuple[str, int, int]]) -> bool:
    x = stream.ranks[rank][place]
    needs = {"RECV_F": ("F", x.stage - 1, x.microbatch), "RECV_B": ("B", x.stage + 1, x.microbatch)}
    return all(needs[op] in sent for op in buffers.uses(stream, rank, x))


def _received(stream: Stream, rank: int, place: int, early: int) -> list[tuple[str, int, int]]:
    """Return the receives that a rank has posted when it is at an instruction."""
    receives = [(i, x) for i, x in enumerate(stream.ranks[rank]) if x.op.startswith("RECV")]
    due = sum(i <= place for i, _ in receives)
    return [_label(x) for _, x in receives[: due + early]]


@pytest.mark.parametrize("early", [0, EARLY, 1000])
@pytest.mark.parametrize("name", ["1f1b", "interleaved", "zb_v"])
def test_what_is_posted(ranks: Ranks, name: str, early: int) -> None:
    """Receives are brought forward by at most the given number of receives, and nothing else moves."""
    stream = stream_of(name, p=2, m=6)
    tags = Tags.of(stream, 1)
    for rank, found in enumerate(ranks.run(2, buffers.posted, stream, early)):
        moved = [x for x in brought_forward(list(stream.ranks[rank]), early) if x.op[:4] in ("SEND", "RECV")]
        assert found == [(x.op[:4] == "RECV", tags.of_tensor(Message.of(x, rank), 0)) for x in moved], rank


def brought_forward(instructions: list[Any], early: int) -> list[Any]:
    """Return the list with each receive at its posting place, written independently."""
    receives = [x for x in instructions if str(getattr(x.op, "name", x.op)).startswith("RECV")]
    made, done, due = [], 0, 0
    for x in instructions:
        is_receive = due < len(receives) and x is receives[due]
        due += is_receive
        made += receives[done : due + early]
        done = max(done, min(due + early, len(receives)))
        made += [] if is_receive else [x]
    return made


def test_the_order_that_is_posted_has_the_verdict_of_the_list() -> None:
    """Under `async`, the model of every backend here, the posted order has the verdict of the list, and sends the same
    messages to the same receivers.

    Random programs that receive inputs before using them; some cannot finish in any model.
    """
    rng = random.Random(3)
    verdicts = Counter[bool]()
    for _ in range(700):
        program = random_program(rng)
        lists = [program.instructions(rank) for rank in range(program.ranks)]
        if any(x.op.name.startswith("WAIT") or x.group >= 0 for rank in lists for x in rank):
            continue  # of torch's programs
        if any(map(late, lists)):
            continue
        early = rng.choice((1, 2, 5))
        moved = of_instructions([brought_forward(x, early) for x in lists], program.placement)
        verdicts[holds(program, ASYNC)] += 1
        assert holds(moved, ASYNC) == holds(program, ASYNC)
        assert pairs(moved) == pairs(program)
    assert min(verdicts.values()) > 10 and len(verdicts) == 2, verdicts


def late(instructions: list[Any]) -> bool:
    """Return True if a message is received after a compute that uses it."""
    used: set[tuple[Any, ...]] = set()
    for x in instructions:
        if x.op in USERS and any((user, x.stage, x.microbatch) in used for user in USERS[x.op]):
            return True
        used.add((x.op, x.stage, x.microbatch))
    return False


def pairs(program: Program) -> Counter[tuple[str, str]]:
    """Return the receiver, sender and message of all receives."""
    partner = pair(program).partner.tolist()
    sends = [i for i in range(len(program)) if program[i].op.send and partner[i] >= 0]
    return Counter(
        (f"{program[i]} {program[i].peer}", f"{program[partner[i]]} {program[partner[i]].peer}") for i in sends
    )


@pytest.mark.parametrize(("name", "p", "m"), [("1f1b", 3, 4), ("zb_v", 3, 6), ("dualpipe", 4, 8)])
def test_without_tags(ranks: Ranks, name: str, p: int, m: int) -> None:
    """There is one communicator per direction, also for ranks with several neighbours: every process makes all of them,
    in one order."""
    found = ranks.run(p, buffers.communicators, stream_of(name, p=p, m=m))
    assert max(error for error, _ in found) <= 1e-12
    first, *others = [made for _, made in found]
    assert first and all(made == first for made in others)


def test_several_ties_between_two_ranks(ranks: Ranks) -> None:
    """Each tied weight is exchanged separately, though the names of its messages are equal."""
    assert max(ranks.run(2, buffers.tied, stream_of("1f1b", p=2, m=4))) <= 1e-12


def test_tags_are_used_where_they_are_known_to_work() -> None:
    """Any backend not known to honour tags gets one communicator per direction."""
    assert [name for name, transport in channels.TRANSPORTS.items() if transport.tagged] == ["gloo"]
    assert not channels.OTHERS.tagged


class Handle:
    """A handle like NCCL's: `wait` returns at once, `is_completed` is accurate."""

    def __init__(self) -> None:
        self.done = False

    def wait(self) -> bool:
        return True

    def is_completed(self) -> bool:
        return self.done


def test_a_wait_that_orders_queues_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """On NCCL the process runs ahead of a wait: the rank waits for the first message that has not come.

    A fault says that its place is not where that message is waited for. A sent buffer is freed at the next instruction
    once its handle is done, oldest first in each direction.
    """
    made: list[Handle] = []

    def post(*_: object) -> Handle:
        made.append(Handle())
        return made[-1]

    monkeypatch.setattr(channels, "backend_of", lambda *_: "nccl")
    monkeypatch.setattr(Channels, "_process_groups", lambda *_: {(0, 0, 1): None, (0, 1, 0): None})
    monkeypatch.setattr(channels, "dist", SimpleNamespace(isend=post, irecv=post))
    line = Channels(0, None, torch.device("cpu"), Tags(1, 2, 8, 1), [(0, 0, 1), (0, 1, 0)])
    coming = [Message("B", 0, 1, i, 1, 0) for i in range(2)]
    for message in coming:
        line.receive(message, (channels.TensorSpec((1,), torch.float32),))
        line.take(message)
    assert line.queues and line.waiting == coming[0]
    runtime: Any = SimpleNamespace(rank=0, stream=SimpleNamespace(ranks=[0, 1]), before=None, after=None, position=6)
    runtime.instructions, runtime.enqueues, runtime.waiting = (
        [Instruction("B", 0, i) for i in range(9)],
        True,
        coming[0],
    )
    assert str(Guard(runtime)._place()) == (
        "rank 0, instruction 7 (0B6): waits for gradient 0 of stage 1, rank 1 to rank 0, on its GPU: "
        "the instruction shown was enqueued last"
    )
    made[0].done = True
    assert line.waiting == coming[1]
    made[1].done = True
    assert line.waiting is None

    going = [Message("F", 0, 0, i, 0, 1) for i in range(3)]
    for message in going:
        line.post({message: (torch.zeros(1),)}, {})
    made[3].done = made[2].done = True
    line.sweep()
    assert list(line._sent) == going[2:]


def test_a_wait_is_as_long_as_that_of_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message for which the GPU, not the process, waits 5 s counts as 5 s of waiting; kernels before it do not."""
    time = [0.0]
    behind = [2.0]  # seconds by which the GPU lags the process

    def settle() -> None:
        time[0], behind[0] = time[0] + behind[0], 0.0

    def take(message: object) -> object:
        behind[0] += 5.0
        return message

    monkeypatch.setattr(recorder, "now", lambda: time[0])
    line = SimpleNamespace(take=take)
    order = (Instruction("F", 1, 0),)
    runtime: Any = SimpleNamespace(rank=0, instructions=order, stream=SimpleNamespace(ranks=[order]), _channels=line)
    runtime.before = runtime.after = None
    timed = recorder.Recorder(runtime, settle=settle)
    timed.before(Instruction("F", 1, 0), 0)
    line.take("a message")
    behind[0] += 3.0
    timed.after(Instruction("F", 1, 0), 0)
    assert timed.steps == [[[0, 0.0, 10.0, 5.0]]]
