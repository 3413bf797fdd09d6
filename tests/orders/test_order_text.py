"""An order that is written as text is read back column for column, and invalid words are refused at their place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipesched.diagnostics import Code, PipeschedError
from pipesched.model.ops import Instruction, Op
from pipesched.model.placement import Placement
from pipesched.model.schedule import Program, Schedule
from pipesched.orders import order_text, order_write
from pipesched.support.source import Source
from tests.depth import deep
from tests.makers.programs import of_instructions

COLUMNS = ("op", "stage", "microbatch", "second", "start")
PROGRAM_COLUMNS = (*COLUMNS, "peer", "group", "communicator")

CROSSED_SENDS = """\
# source: github.com/pytorch/pytorch/issues/172668
rank 0: F0.0 send:F0.0>1 F0.1 send:F0.1>1 recv:F1.0<1 F2.0
rank 1: recv:F0.0<0 F1.0 send:F1.0>0 recv:F0.1<0 F1.1
"""
FRAGMENT = """\
rank 0: send:F2.1>1 F0.2 send:F0.2>1 recv:B3.0<1 B2.0
rank 1: recv:F2.1<0 send:B3.0>0 F3.1 B3.1 recv:F0.2<0 send:B3.1>0 F1.2
"""

small = st.integers(0, 9)
compute = st.builds(Instruction, st.sampled_from([Op.F, Op.I, Op.W, Op.B]), small, small)
message = st.builds(
    Instruction,
    st.sampled_from([Op.SEND_F, Op.SEND_B, Op.RECV_B]),
    small,
    small,
    small,
    communicator=st.integers(0, 2),
) | st.builds(Instruction, st.just(Op.RECV_F), st.integers(1, 9), small, small)
wait = st.builds(Instruction, st.sampled_from([Op.WAIT_SEND_F, Op.WAIT_SEND_B]), small, small)
whole = st.builds(
    Instruction, st.sampled_from([Op.REDUCE_GRAD, Op.WAIT_REDUCE_GRAD, Op.UNSHARD, Op.RESHARD]), small
) | st.builds(Instruction, st.just(Op.SYNC), small, peer=small)
overlap = st.tuples(
    st.builds(Instruction, st.just(Op.F), small, small),
    st.builds(Instruction, st.sampled_from([Op.B, Op.I]), small, small, second=st.just(True)),
)
slot: st.SearchStrategy[tuple[Instruction, ...]] = (
    compute | message | wait | whole | st.just(Instruction(Op.STEP))
).map(lambda x: (x,)) | overlap
batch = st.lists(st.tuples(st.booleans(), st.lists(slot, min_size=1, max_size=3)), max_size=6)


def instructions(batches: list[tuple[bool, list[tuple[Instruction, ...]]]]) -> list[Instruction]:
    """Return a rank's list; batches are numbered from 0."""
    found, number = [], 0
    for fused, slots in batches:
        for x in (x for parts in slots for x in parts):
            group = number if fused else -1
            found.append(Instruction(x.op, x.stage, x.microbatch, x.peer, group, x.communicator, x.second))
        number += fused
    return found


def nowhere() -> Placement:
    return Placement(np.zeros((1, 10), np.int32), np.zeros(10, np.int32), 1)


def read(text: str, name: str = "order.txt") -> Schedule | Program:
    return order_text.read(Source(name, text))


@given(st.lists(batch.map(instructions), min_size=1, max_size=3))
@settings(max_examples=deep(37, usual=19), deadline=None)
def test_programs_round_trip(lists: list[list[Instruction]]) -> None:
    """read(write(x)) == x, column for column, for any instructions."""
    program = of_instructions(lists, nowhere())
    if not len(program):
        return
    again = read(order_write.write(program))
    if isinstance(again, Schedule):
        assert np.all(program.op <= Op.B)
        assert [np.array_equal(getattr(again, c), getattr(program, c)) for c in COLUMNS] == [True] * len(COLUMNS)
    else:
        assert {c: getattr(again, c).tolist() for c in PROGRAM_COLUMNS} == {
            c: getattr(program, c).tolist() for c in PROGRAM_COLUMNS
        }


@given(st.lists(st.lists(compute.map(lambda x: (x,)) | overlap, max_size=12), min_size=1, max_size=4))
@settings(max_examples=deep(25, usual=13), deadline=None)
def test_schedules_round_trip(ranks: list[list[tuple[Instruction, ...]]]) -> None:
    """read(write(x)) == x, and every operation finds its word."""
    lists = [[x for slot in rank for x in slot] for rank in ranks]
    program = of_instructions(lists, nowhere())
    if not len(program):
        return
    schedule = Schedule(
        "x", {}, nowhere(), program.op, program.stage, program.microbatch, program.second, program.start
    )
    again = read(order_write.write(schedule))
    assert isinstance(again, Schedule)
    assert {c: getattr(again, c).tolist() for c in COLUMNS} == {c: getattr(schedule, c).tolist() for c in COLUMNS}
    places = [again.origin.place(i).span for i in range(len(again))]
    assert [span.text for span in places if span] == [str(again[i]) for i in range(len(again))]


@pytest.mark.parametrize("text", [CROSSED_SENDS, FRAGMENT])
def test_published_orders_read_and_write(text: str) -> None:
    """The orders of pytorch#172668 are written as they were read, comments aside."""
    program = read(text)
    assert isinstance(program, Program)
    assert order_write.write(program) == "".join(x for x in text.splitlines(True) if not x.startswith("#"))


def test_both_ends_of_a_message_bear_one_name() -> None:
    """recv:F0.1 is RECV_F of stage 1 and recv:B3.0 is RECV_B of stage 2: each is named by its producer."""
    program = read(FRAGMENT)
    names = [f"{program[i]} {program[i].peer}" for i in range(len(program)) if program.op[i] > Op.B]  # type: ignore[union-attr]
    assert names == [
        "2SEND_F1 1",
        "0SEND_F2 1",
        "2RECV_B0 1",
        "3RECV_F1 0",
        "3SEND_B0 0",
        "1RECV_F2 0",
        "3SEND_B1 0",
    ]


def test_fragment_placement() -> None:
    """A fragment shows the rank of a stage by its operations, or by the rank that a message names."""
    assert read(FRAGMENT).placement.rank_of.tolist() == [[0, 1, 0, 1]]


def test_words_that_stand_for_stages() -> None:
    """Every word of the notation means its instruction."""
    text = (
        "rank 0: wait:F0.1 wait:B3.2 reduce:2 wait:2 sync:2=5 step unshard:2 reshard:2 ( send:F0.1>1 recv:B1.0<1@3 )\n"
    )
    program = read("rank 0: F0.0 " + text.removeprefix("rank 0: "))
    assert isinstance(program, Program)
    assert program.instructions(0)[1:] == [
        Instruction(Op.WAIT_SEND_F, 0, 1),
        Instruction(Op.WAIT_SEND_B, 3, 2),
        Instruction(Op.REDUCE_GRAD, 2),
        Instruction(Op.WAIT_REDUCE_GRAD, 2),
        Instruction(Op.SYNC, 2, peer=5),
        Instruction(Op.STEP),
        Instruction(Op.UNSHARD, 2),
        Instruction(Op.RESHARD, 2),
        Instruction(Op.SEND_F, 0, 1, 1, group=0),
        Instruction(Op.RECV_B, 0, 0, 1, group=0, communicator=3),
    ]


def test_two_routes_are_found() -> None:
    """DualPipe at p = 2: stage s is on rank s for one half of the microbatches and on rank 1 - s for the other."""
    x = read("# p: 2\nrank 0: F0.0 F1.1 B1.1 B0.0\nrank 1: F0.1 F1.0+B1.0 B0.1  # note\n")
    assert isinstance(x, Schedule)
    assert x.placement.table.T.tolist() == [[0, 1], [1, 0]]
    assert x.second.tolist() == [False] * 6 + [True, False]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("rank 0: F0 F0.0 f0.1 B0.0x\n", [(1, 9), (1, 17), (1, 22)]),
        ("rank 0: W0.0+F0.0 B0.0+F0.1 F0.0+ +B0.0 F0.0+B0.0+B0.1\n", [(1, 9), (1, 19), (1, 29), (1, 35), (1, 41)]),
        (
            "rank 0: send:F0.0 send:I0.0>1 send:F0.0<1 recv:F0.0>1 recv:B0.0<1\n",
            [(1, 9), (1, 19), (1, 31), (1, 43), (1, 55)],
        ),
        ("rank 0: F0.0\n\nrank 2: F0.0 x\n", [(3, 1), (3, 14)]),
        ("F0.0\nrank 0 F0.0\n", [(1, 1), (2, 1)]),
        ("rank 0: ( F0.0 ( B0.0 ) ) F0.1\nrank 1: ( F0.0\n", [(1, 16), (1, 25), (2, 9)]),
        ("rank 0: sync:0 step:1 reduce: unshard:0.0\n", [(1, 9), (1, 16), (1, 23), (1, 31)]),
    ],
)
def test_every_bad_word_is_reported(text: str, places: list[tuple[int, int]]) -> None:
    """All bad words are reported together, each at its line and column."""
    with pytest.raises(PipeschedError) as caught:
        read(text)
    found = [(d.labels[0].span.line, d.labels[0].span.column) for d in caught.value.diagnostics if d.labels[0].span]
    assert found == places
    assert {d.code for d in caught.value.diagnostics} == {Code.CELL}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", Code.EMPTY),
        ("# only a comment\n", Code.EMPTY),
        ("rank 0:\nrank 1:\n", Code.EMPTY),
        ("rank 0: F0.99999999999\n", Code.OUT_OF_RANGE),
        ("rank 0: F0.10000001 send:F0.1>99999999\n", Code.OUT_OF_RANGE),
        ("rank 0: F9999999.0 F0.9999999\n", Code.OUT_OF_RANGE),
    ],
)
def test_nothing_and_too_much(text: str, code: Code) -> None:
    """An order without operations is empty; a huge number is refused before any table is made."""
    with pytest.raises(PipeschedError) as caught:
        read(text)
    assert {d.code for d in caught.value.diagnostics} == {code}


@pytest.mark.nightly
def test_a_million_operations() -> None:
    """A million operations, an ordinary size, are read back as written."""
    count = 128 * 8192
    index = np.arange(count, dtype=np.int32)
    schedule = Schedule(
        "x", {}, nowhere(), (index % 4).astype(np.int8), index % 128, index // 128, index < 0, np.array([0, count])
    )
    again = read(order_write.write(schedule))
    assert np.array_equal(again.microbatch, schedule.microbatch)


def test_a_program_of_many_words() -> None:
    """Messages are read as fast as computes, however many."""
    count = 400_000
    words = " ".join(f"send:F0.{i}>1@{i % 3}" for i in range(count))
    program = read(f"rank 0: {words}\nrank 1:\n")
    assert isinstance(program, Program)
    assert program.microbatch.tolist() == [*range(count)]
    assert program.communicator.tolist() == [i % 3 for i in range(count)]
    assert set(program.peer.tolist()) == {1}


def test_zeros_before_a_number_change_nothing() -> None:
    """However long a number is, its value counts: thirty zeros and a 1 are 1."""
    program = read(f"rank 0: F{'0' * 30}.{'0' * 30}1\n")
    assert (program.stage.tolist(), program.microbatch.tolist()) == ([0], [1])


def test_numbers_as_large_as_are_read_are_written() -> None:
    """Words whose numbers differ by ten millions in every field, stages by 50,000 (with ``--depth 2`` by 500,000), are
    written as they were read.
    """
    most = 499_999 if deep(1) > 1 else 49_999
    text = f"rank 0: F0.0 F{most}.0 send:F{most}.0>9999999@9999999 send:F0.0>0@3 send:F0.1>0@8888888\n"
    program = read(text)
    assert isinstance(program, Program)
    assert order_write.write(program) == text


@pytest.mark.parametrize(("was", "becomes"), [("rank 1:", "rank one:"), ("rank 1:", "rnk 1:"), ("rank 1:", "rank 7:")])
def test_a_wrong_rank_is_said_once(was: str, becomes: str) -> None:
    """The lines after it are right by what they say, or by where they are."""
    text = "".join(f"rank {rank}: F{rank}.0 B{rank}.0\n" for rank in range(2)).replace(was, becomes)
    with pytest.raises(PipeschedError) as error:
        read(text + ("rank 2: F2.0 B2.0\n" if "7" not in becomes else ""))
    (found,) = error.value.diagnostics
    assert found.labels[0].span.line == 2
