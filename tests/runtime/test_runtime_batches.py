"""Batches and communicators run as written, with one call per batch, one group per communicator, and the right
gradients."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator

import pytest

import pipesched
from pipesched.compile import lower
from pipesched.formats import stream_write
from pipesched.model.ops import Instruction, Op
from pipesched.model.schedule import Program
from pipesched.orders import order_text, order_write
from pipesched.stream import BATCH, Stream, StreamError, dumps, loads
from pipesched.support.source import Source
from tests.depth import some
from tests.makers.communication_notation import _list
from tests.makers.communication_orders import fused_1f1b, torch_1f1b
from tests.makers.communication_recorded import DUALPIPE
from tests.makers.programs import of_instructions
from tests.runtime import batched, evaluated
from tests.runtime.harness import Ranks, ranks_of
from tests.runtime.models import Block
from tests.runtime.streams import program_of, published

WEIGHTS = len([*Block().parameters()])


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with ranks_of(4) as made:
        yield made


def recorded(lists: tuple[str, ...], name: str, p: int, m: int) -> Program:
    """Return an order of published code, with reductions and optimizer as in our lowering, and without waits for
    messages that a rank does not send.
    """
    own = program_of(name, p=p, m=m)
    ends = (Op.REDUCE_GRAD, Op.SYNC, Op.STEP)
    full = []
    for rank, text in enumerate(lists):
        made = _list(text, rank, p)
        sent = {(x.op.name, x.stage, x.microbatch) for x in made}
        names = [(x, x.op.name.removeprefix("WAIT_")) for x in made]
        made = [x for x, name in names if name == x.op.name or (name, x.stage, x.microbatch) in sent]
        full.append(made + [x for x in own.instructions(rank) if x.op in ends])
    return of_instructions(full, own.placement)


def read(text: str) -> Program:
    """Return a program of the order notation."""
    made = order_text.read(Source("order.txt", text))
    assert isinstance(made, Program)
    return made


def a_direction(name: str, **sizes: int) -> Program:
    """Return the gradients on a communicator of their own, in the order notation."""
    text = order_write.write(lower(pipesched.load(name, **sizes)))
    return read(re.sub(r"((?:send|recv):B\S+)", r"\1@1", text))


def fused(name: str, seed: int, **sizes: int) -> Program:
    """Return the neighbouring messages merged into batches at random, some of them on another communicator."""
    rng = random.Random(seed)
    program = program_of(name, **sizes)
    channels: dict[tuple[int, int, bool], int] = {}
    lists = []
    for rank in range(program.ranks):
        made: list[Instruction] = []
        group, before = 0, False
        for x in program.instructions(rank):
            message = x.op.send or x.op.receive
            if message:
                ends = (rank, x.peer) if x.op.send else (x.peer, rank)
                on = channels.setdefault((*ends, x.op in (Op.SEND_F, Op.RECV_F)), rng.randrange(2))
                group += not before or rng.random() < 0.3
                x = Instruction(x.op, x.stage, x.microbatch, x.peer, group, on)
            before = message
            made.append(x)
        lists.append(made)
    return of_instructions(lists, program.placement, program.name)


PROGRAMS: dict[str, Callable[[], Program]] = {
    "Megatron's 1F1B, p = 2": lambda: recorded(fused_1f1b(2, 4), "1f1b", 2, 4),
    "Megatron's 1F1B, p = 4": lambda: recorded(fused_1f1b(4, 6), "1f1b", 4, 6),
    "torch's 1F1B, p = 2": lambda: recorded(torch_1f1b(2, 4, False), "1f1b", 2, 4),
    "torch's 1F1B, communicators made lazily": lambda: recorded(torch_1f1b(3, 4, True), "1f1b", 3, 4),
    "DualPipe, p = 2": lambda: recorded(DUALPIPE[2, 4], "dualpipe", 2, 4),
    "DualPipe, p = 4": lambda: recorded(DUALPIPE[4, 8], "dualpipe", 4, 8),
    "a communicator a direction": lambda: a_direction("1f1b", p=3, m=4),
    "a communicator a direction, looped": lambda: a_direction("interleaved", p=2, m=4),
    "at random": lambda: fused("zb_v", 1, p=2, m=4),
    "at random, looped": lambda: fused("interleaved", 2, p=3, m=6),
    "at random, p = 4": lambda: fused("zb_h1", 3, p=4, m=6),
}


@pytest.mark.parametrize(("name", "tagged"), some([*itertools.product(PROGRAMS, (True, False))], 1, usual=3))
def test_a_batch_is_one_call(ranks: Ranks, name: str, tagged: bool) -> None:
    """Gradients are those of undivided training and nothing is left, with tags, and with pairing by order of posts.

    With tags a call holds a batch's messages on one communicator, if more than one, and each communicator but the first
    is a process group. Without tags every message or batch on a communicator that carries batches is a call, in the
    order of the list. The two gradients of the copies of a weight are one call.
    """
    stream = published(PROGRAMS[name]())
    shared = {part.communicator for rank in stream.ranks for x in rank if x.op == BATCH for part in x.parts}
    for rank, found in enumerate(ranks.run(len(stream.ranks), batched.batched, stream, tagged, False)):
        assert found["error"] <= 1e-12 and found["loss"] <= 1e-12
        assert found["left"] == found["handed"] == 0
        calls = []
        for x in stream.ranks[rank]:
            on = [part.communicator for part in x.messages]
            calls += [on.count(c) for c in sorted(set(on)) if on.count(c) > 1 or (c in shared and not tagged)]
            calls += [2] * WEIGHTS if x.op == "SYNC" and (tagged or 0 in shared) else []
        assert sorted(found["batches"]) == sorted(calls)
        if len(shared) == 1:
            assert found["batches"] == calls
        if tagged:
            assert found["groups"] == len(communicators(stream) - {0})


def communicators(stream: Stream) -> set[int]:
    return {x.communicator for rank in stream.ranks for instruction in rank for x in instruction.messages}


@pytest.mark.parametrize("name", ["Megatron's 1F1B, p = 2", "Megatron's 1F1B, p = 4", "DualPipe, p = 4"])
def test_a_rank_waits_for_its_whole_batch(ranks: Ranks, name: str) -> None:
    """In the discipline of `strict`, where each send and receive blocks, a batch is posted
    completely before any wait.
    """
    stream = published(PROGRAMS[name]())
    for found in ranks.run(len(stream.ranks), batched.batched, stream, True, True):
        assert found["error"] <= 1e-12


@pytest.mark.parametrize("name", ["Megatron's 1F1B, p = 4", "DualPipe, p = 2", "at random, looped"])
def test_evaluation_keeps_what_is_forward_of_a_batch(ranks: Ranks, name: str) -> None:
    """The forwards of such a program and their messages run alone."""
    stream = published(PROGRAMS[name]())
    for found in ranks.run(len(stream.ranks), evaluated.evaluated, stream, True):
        assert max(found["outputs"], found["losses"], found["trained"]) <= 1e-12


@pytest.mark.parametrize("name", PROGRAMS)
def test_such_a_stream_is_of_version_2(name: str) -> None:
    """It reads back under version 2; batches and communicators are part of the fingerprint.

    Columns are written as their records are.
    """
    program = PROGRAMS[name]()
    stream = published(program)
    text = dumps(stream)

    assert '"version": 2' in text
    assert loads(text) == stream
    whole = loads("".join(stream_write.pieces(program, {})))
    assert whole.ranks == stream.ranks and dumps(whole) == "".join(stream_write.pieces(program, {}))
    with pytest.raises(StreamError, match="this reader supports versions 2 and 3, not 1"):
        loads(text.replace('"version": 2', '"version": 1'))
    others = [published(one) for one in (a_direction("1f1b", p=3, m=4), lower(pipesched.load("1f1b", p=3, m=4)))]
    assert others[0].fingerprint != others[1].fingerprint


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ('{"op":"BATCH","parts":[]}', "sends and receives"),
        ('{"op":"BATCH","parts":[{"op":"F","stage":0,"microbatch":0}]}', "sends and receives"),
        ('{"op":"BATCH","stage":0}', "BATCH has the fields op, parts"),
        ('{"op":"SEND_F","stage":0,"microbatch":0,"peer":1,"communicator":-1}', "a nonnegative whole number"),
        ('{"op":"F","stage":0,"microbatch":0,"communicator":1}', "F has the fields"),
    ],
)
def test_what_is_no_batch_is_refused(change: str, said: str) -> None:
    text = dumps(published(PROGRAMS["Megatron's 1F1B, p = 2"]()))
    with pytest.raises(StreamError, match=said):
        loads(text.replace('{"op":"F","stage":0,"microbatch":0}', change, 1))
