"""A message that carries a shape is named after the message that it announces, uses an ordinary channel, and always
blocks."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

import pipesched
from pipesched.analysis.communication import ASYNC, ONE_STREAM, PAIR_STREAM, STRICT
from pipesched.analysis.events import Events
from pipesched.model.ops import Op
from pipesched.model.schedule import Program
from pipesched.support.source import Source
from tests.depth import deep
from tests.makers.programs import of_instructions
from tests.makers.random_programs import random_program

AS_SHAPE = {
    Op.SEND_F: Op.SEND_SHAPE_F,
    Op.RECV_F: Op.RECV_SHAPE_F,
    Op.SEND_B: Op.SEND_SHAPE_B,
    Op.RECV_B: Op.RECV_SHAPE_B,
}
FIRST = "F0.0 ( sendshape:F0.0>1 ) send:F0.0>1 F0.1 ( {} ) recv:B1.0<1 send:F0.1>1 B0.0 recvshape:B1.1<1 recv:B1.1<1"
SECOND = "recvshape:F0.0<0 recv:F0.0<0 F1.0 B1.0 ( {} ) send:B1.0>0 recv:F0.1<0 F1.1 B1.1 sendshape:B1.1>0 send:B1.1>0"


def program(first: str, second: str) -> Source:
    """Return 1F1B of two ranks that send each other every shape; the exchange in the middle is given."""
    text = f"rank 0: {FIRST.format(first)} B0.1 reduce:0\nrank 1: {SECOND.format(second)} reduce:1\n"
    return Source("shapes.txt", text)


def as_shapes(program: Program) -> Program:
    """Turn each message into a shape; without WAIT, which is for posted messages."""
    lists = [
        [x for x in program.instructions(rank) if x.op not in (Op.WAIT_SEND_F, Op.WAIT_SEND_B)]
        for rank in range(program.ranks)
    ]
    made = of_instructions(lists, program.placement)
    return replace(made, op=np.array([AS_SHAPE.get(Op(op), op) for op in made.op.tolist()], dtype=np.int8))


@pytest.mark.parametrize("seed", range(deep(150)))
def test_the_list_waits_in_a_shape_under_every_model(seed: int) -> None:
    """A program of shapes alone stops, posted or not, exactly if the same program of messages does under strict."""
    shapes = as_shapes(random_program(random.Random(seed)))
    back = {shape: op for op, shape in AS_SHAPE.items()}
    blocking = replace(shapes, op=np.array([back.get(Op(op), op) for op in shapes.op.tolist()], dtype=np.int8))
    expected = Events(blocking, STRICT).stops
    assert Events(shapes, STRICT).stops == expected
    assert Events(shapes, ASYNC).stops == expected
    for model in (ONE_STREAM, PAIR_STREAM):
        assert (max(Events(shapes, model).stops) < 0) == (max(expected) < 0)


def test_shapes_in_one_order_hold() -> None:
    """If shapes come first, each message is received into a buffer of its size."""
    report = pipesched.verify(program("sendshape:F0.1>1 recvshape:B1.0<1", "sendshape:B1.0>0 recvshape:F0.1<0"))
    assert report.ok
    assert report.parts is not None and report.parts.messages == 8


def test_a_shape_that_is_taken_for_another() -> None:
    """Two shapes in one batch to one rank, received in the other order, put the right data into wrong buffers."""
    lists = (
        "F0.0 F2.0 ( sendshape:F0.0>1 sendshape:F2.0>1 ) send:F0.0>1 send:F2.0>1",
        "( recvshape:F2.0<0 recvshape:F0.0<0 ) recv:F0.0<0 F1.0 recv:F2.0<0 F3.0",
    )
    text = "".join(f"rank {rank}: {words}\n" for rank, words in enumerate(lists))
    found = pipesched.verify(Source("swapped.txt", text), comm="async").diagnostics
    swapped = [x for x in found if x.code == "PS403"]
    assert [x.message for x in swapped] == [
        "message 1 from rank 0 to rank 1 is 0SEND_SHAPE_F0, received as 3RECV_SHAPE_F0"
    ]
    assert "gets the shape of the activation of stage 0" in swapped[0].labels[0].message


@pytest.mark.parametrize("target", ["stream", "torch-comms"])
def test_what_cannot_say_a_shape_refuses_it(target: str) -> None:
    """Streams and torch's CSV have no such instruction, so writing it is refused."""
    source = program("sendshape:F0.1>1 recvshape:B1.0<1", "sendshape:B1.0>0 recvshape:F0.1<0")
    with pytest.raises(pipesched.PipeschedError) as caught:
        pipesched.emit(source, to=target)
    assert {str(x.code) for x in caught.value.diagnostics} == {"PS814"}
    assert "SHAPE" in str(caught.value)


def test_a_shape_takes_no_time() -> None:
    """By hand, under strict: F0 ends at 1, F1 begins at 6, B1 ends at 9, B0 begins at 14; only two messages take 5."""
    text = (
        "rank 0: F0.0 sendshape:F0.0>1 send:F0.0>1 recvshape:B1.0<1 recv:B1.0<1 B0.0 reduce:0\n"
        "rank 1: recvshape:F0.0<0 recv:F0.0<0 F1.0 B1.0 sendshape:B1.0>0 send:B1.0>0 reduce:1\n"
    )
    report = pipesched.verify(Source("shapes.txt", text), costs="F=1,B=2,C=5", comm="strict")
    assert report.ok and report.parts.communication is not None and report.parts.communication.makespan == 16
