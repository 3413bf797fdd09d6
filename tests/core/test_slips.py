"""Each check finds a mistake that is planted for it, and the report contains only the code of this check, at the place
of the mistake.

Slips are planted in right schedules and programs; the finding points at the rank and step where the slip is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import pipesched
from pipesched import compile as compiler
from pipesched.model.ops import Compute, Instruction, Op
from pipesched.model.placement import Placement
from pipesched.model.schedule import Program, Schedule
from pipesched.report.report import Report
from tests.depth import deep
from tests.makers import strategies
from tests.makers.mutate import Lists
from tests.makers.programs import of_instructions
from tests.oracles import simulate

CALM = settings(derandomize=True, deadline=None, max_examples=deep(10))


def codes(report: Report) -> list[str]:
    return [str(d.code) for d in report.diagnostics if d.severity == "error"]


@CALM
@given(strategies.SEEDS, st.data())
def test_an_operation_that_is_missing_or_there_twice(seed: int, data: st.DataObject) -> None:
    """A missing operation has only PS301; a repeated one has PS302 at its second place, and only its consequences."""
    schedule = strategies.random_schedule(seed, pairs=0)
    orders = simulate.orders_of(schedule)
    rank = data.draw(st.sampled_from([r for r, order in enumerate(orders) if order]))
    i = data.draw(st.integers(0, len(orders[rank]) - 1))
    x = orders[rank][i]
    rest = [[*order[:i], *order[i + 1 :]] if r == rank else order for r, order in enumerate(orders)]
    assume(any(y.op is not Op.F for order in rest for y in order))
    missing = pipesched.verify(Schedule.from_orders(rest, schedule.placement))
    what = "B (or I and W)" if x.op is Op.B else x.op.name
    told = f"stage {x.stage} never runs {what} of microbatch {x.microbatch} on rank {rank}"
    assert set(codes(missing)) == {"PS301"} and told in [d.message for d in missing.diagnostics]
    orders[rank].append(x)
    twice = pipesched.verify(Schedule.from_orders(orders, schedule.placement))
    assert codes(twice) == ["PS302"]
    assert places(twice, "PS302") == [(rank, len(orders[rank])), (rank, i + 1)]


def places(report: Report, code: str) -> list[tuple[int, int]]:
    """Return the rank and step of each label of the first finding of a code."""
    found = next(d for d in report.diagnostics if d.code == code)
    matches = [re.match(r"rank (\d+), step (\d+)", label.message) for label in found.labels]
    return [(int(match[1]), int(match[2])) for match in matches if match]


@pytest.mark.parametrize(
    ("order", "code", "where"),
    [
        ([["F0.0", "F0.1", "B0.0", "B1.1", "B0.1"], ["F1.0", "B1.0", "F1.1"]], "PS303", (0, 4)),
        ([["F0.0", "F0.1", "F0.2", "B0.0", "B0.1"], ["F1.0", "B1.0", "F1.1", "B1.1"]], "PS304", (0, 3)),
        ([["F0.0", "F0.1", "B0.0", "B0.1"], ["B1.0", "F1.0", "F1.1", "B1.1"]], "PS305", (1, 1)),
        ([["F0.0", "F0.1", "W0.0", "I0.0", "B0.1"], ["F1.0", "B1.0", "F1.1", "B1.1"]], "PS305", (0, 3)),
        ([["F0.0", "B0.0", "F0.1", "B0.1"], ["F1.0", "F1.1", "B1.0", "B1.1"]], "PS306", (0, 2)),
        ([["F0.0", "F0.1", "B0.0", "B0.1"], ["F1.0", "B1.0", "F1.1", "+B1.1"]], "PS307", (1, 3)),
        ([["F0.0", "F0.1", "B0.0", "B0.1"], ["F1.0", "B1.0", "+F1.1", "B1.1"]], "PS307", (1, 2)),
        ([["+F0.0", "F0.1", "B0.0", "B0.1"], ["F1.0", "B1.0", "F1.1", "B1.1"]], "PS307", (0, 1)),
        ([["F0.0", "O0.0", "F0.1", "B0.0", "B0.1"], ["F1.0", "B1.0", "F1.1", "B1.1"]], "PS301", (0, 2)),
        ([["F0.0", "F0.1", "L0.0", "B0.0", "B0.1"], ["F1.0", "B1.0", "F1.1", "B1.1"]], "PS301", (0, 3)),
        ([["F0.0", "F0.1", "L0.0", "O0.0", "B0.0", "B0.1"], ["F1.0", "B1.0", "F1.1", "B1.1"]], "PS305", (0, 3)),
        ([["F0.0", "F0.1", "B0.0", "R0.0", "B0.1"], ["F1.0", "B1.0", "F1.1", "B1.1"]], "PS305", (0, 3)),
        ([["F0.0", "O0.0", "F0.1", "B0.0", "L0.0", "B0.1"], ["F1.0", "B1.0", "F1.1", "B1.1"]], "PS305", (0, 4)),
        ([["F0.0", "F0.1", "I0.0", "B0.0", "B0.1"], ["F1.0", "B1.0", "F1.1", "B1.1"]], "PS302", (0, 3)),
        ([["F0.0", "F0.1", "B0.0", "W0.0", "B0.1"], ["F1.0", "B1.0", "F1.1", "B1.1"]], "PS302", (0, 4)),
        ([["F0.0", "F0.1", "R0.0"], ["F1.0", "F1.1"]], "PS301", (0, 1)),
        ([["F0.0", "F0.1", "O0.0", "L0.0", "R0.0", "B0.0", "B0.1"], ["F1.0", "B1.0", "F1.1", "B1.1"]], "PS311", (0, 3)),
    ],
)
def test_a_slip_in_a_compute_order(order: list[list[str]], code: str, where: tuple[int, int]) -> None:
    """1F1B on two ranks, or only its forwards, with one slip has that code alone, at that place."""
    lists = [[_compute(word) for word in words] for words in order]
    placement = Placement(np.array([[0, 1]], dtype=np.int32), np.zeros(2, dtype=np.int32), 2)
    report = pipesched.verify(Schedule.from_orders(lists, placement))
    assert codes(report) == [code]
    assert where in places(report, code)


def test_an_overlap_of_two_stages_of_one_microbatch() -> None:
    """On a V of four stages, the first backward needs the last forward, so they cannot share a slot."""
    orders = [["F0.0", "F3.0", "+B0.0", "B3.0"], ["F1.0", "F2.0", "B2.0", "B1.0"]]
    placement = Placement(np.array([[0, 1, 1, 0]], dtype=np.int32), np.zeros(1, dtype=np.int32), 2)
    report = pipesched.verify(Schedule.from_orders([[_compute(x) for x in order] for order in orders], placement))
    assert "PS307" in codes(report) and places(report, "PS307") == [(0, 2)]


def _compute(word: str) -> Compute:
    stage, microbatch = word.lstrip("+")[1:].split(".")
    return Compute(Op[word.lstrip("+")[0]], int(stage), int(microbatch), word.startswith("+"))


def base(name: str) -> Program:
    return compiler.lower(pipesched.load(name, p=3 if name == "1f1b" else 4, m=4 if name == "1f1b" else 8))


def at(lists: Lists, rank: int, text: str) -> int:
    return [str(x) for x in lists[rank]].index(text)


def take(lists: Lists, rank: int, text: str) -> Instruction:
    return lists[rank].pop(at(lists, rank, text))


def put(lists: Lists, rank: int, x: Instruction, before: str) -> None:
    lists[rank].insert(at(lists, rank, before), x)


def _late_receive(lists: Lists) -> tuple[int, int]:
    put(lists, 1, take(lists, 1, "1RECV_F0"), "1RECV_F1")
    return 1, at(lists, 1, "1F0")


def _received_elsewhere(lists: Lists) -> tuple[int, int]:
    """Send the gradient for rank 1 to rank 0, which takes it, so rank 1 has no input."""
    i = at(lists, 2, "2SEND_B3")
    lists[2][i] = replace(lists[2][i], peer=0)
    put(lists, 0, take(lists, 1, "1RECV_B3"), "0RECV_B3")
    return 1, at(lists, 1, "1B3")


def _early_send(lists: Lists) -> tuple[int, int]:
    put(lists, 0, take(lists, 0, "0SEND_F0"), "0F0")
    return 0, 0


def _no_send(lists: Lists) -> tuple[int, int]:
    take(lists, 0, "0SEND_F3")
    return 1, at(lists, 1, "1RECV_F3")


def _swapped(lists: Lists) -> tuple[int, int]:
    one, two = at(lists, 1, "1RECV_F0"), at(lists, 1, "1RECV_F1")
    first = lists[1].pop(two)
    lists[1].insert(one, first)
    return 1, one


def _to_itself(lists: Lists) -> tuple[int, int]:
    lists[1].insert(0, Instruction(Op.RECV_F, 1, 0, 1))
    return 1, 0


def _to_nowhere(lists: Lists) -> tuple[int, int]:
    lists[2].insert(0, Instruction(Op.SEND_F, 2, 0, -1))
    return 2, 0


def _to_no_rank(lists: Lists) -> tuple[int, int]:
    lists[2].insert(0, Instruction(Op.SEND_F, 2, 0, 3))
    return 2, 0


def _sync_with_another(lists: Lists) -> tuple[int, int]:
    i = at(lists, 3, "0SYNC")
    lists[3][i] = replace(lists[3][i], peer=1)
    return 3, i


def _twice(lists: Lists) -> tuple[int, int]:
    for rank, text in ((0, "0SEND_F0"), (1, "1RECV_F0")):
        i = at(lists, rank, text)
        lists[rank].insert(i, lists[rank][i])
    return 0, at(lists, 0, "0SEND_F0") + 1


def _twice_at_the_end(lists: Lists) -> tuple[int, int]:
    """Send a message again when all is done: the operation that uses it has the first one."""
    for rank, text in ((0, "0SEND_F0"), (1, "1RECV_F0")):
        put(lists, rank, lists[rank][at(lists, rank, text)], "STEP")
    return 0, at(lists, 0, "STEP") - 1


def _send_first(lists: Lists) -> tuple[int, int]:
    put(lists, 1, take(lists, 1, "1RECV_F2"), "1F2")
    return 1, at(lists, 1, "1SEND_B0")


def _no_reduction(lists: Lists) -> tuple[int, int]:
    take(lists, 2, "2REDUCE_GRAD")
    return 2, at(lists, 2, "2B3")


def _reduced_twice(lists: Lists) -> tuple[int, int]:
    put(lists, 2, Instruction(Op.REDUCE_GRAD, 2), "STEP")
    return 2, at(lists, 2, "STEP") - 1


def _reduced_early(lists: Lists) -> tuple[int, int]:
    put(lists, 2, take(lists, 2, "2REDUCE_GRAD"), "2B3")
    return 2, at(lists, 2, "2REDUCE_GRAD")


def _no_step(lists: Lists) -> tuple[int, int]:
    take(lists, 1, "STEP")
    return 1, len(lists[1]) - 1


def _two_steps(lists: Lists) -> tuple[int, int]:
    lists[1].append(Instruction(Op.STEP))
    return 1, len(lists[1]) - 1


def _early_step(lists: Lists) -> tuple[int, int]:
    put(lists, 1, take(lists, 1, "STEP"), "1REDUCE_GRAD")
    return 1, at(lists, 1, "STEP")


def _stepped_before_it_is_synced(lists: Lists) -> tuple[int, int]:
    put(lists, 1, take(lists, 1, "STEP"), "2SYNC")
    return 1, at(lists, 1, "STEP")


def _no_sync(lists: Lists) -> tuple[int, int]:
    for rank in (1, 2):
        take(lists, rank, "2SYNC")
    return 1, len(lists[1]) - 1


def _syncs_crossed(lists: Lists) -> tuple[int, int]:
    put(lists, 2, take(lists, 2, "2SYNC"), "1SYNC")
    return 1, at(lists, 1, "1SYNC")


def _synced_twice(lists: Lists) -> tuple[int, int]:
    for rank, peer in ((1, 2), (2, 1)):
        put(lists, rank, Instruction(Op.SYNC, 2, peer=peer), "STEP")
    return 1, at(lists, 1, "STEP") - 1


def _synced_early(lists: Lists) -> tuple[int, int]:
    put(lists, 1, take(lists, 1, "1REDUCE_GRAD"), "2SYNC")
    return 1, at(lists, 1, "1SYNC")


def _syncs_out_of_turn(lists: Lists) -> tuple[int, int]:
    """Let ranks 0 and 2 meet before they meet 1 and 3, so 1 and 3 end with the gradients of 0 and 2 twice."""
    for rank in (0, 2):
        first = at(lists, rank, "0SYNC")
        lists[rank][first : first + 2] = lists[rank][first : first + 2][::-1]
    return 1, at(lists, 1, "0SYNC")


SLIPS: list[tuple[str, Callable[[Lists], tuple[int, int]], set[str]]] = [
    ("1f1b", _late_receive, {"PS308"}),
    ("1f1b", _received_elsewhere, {"PS308"}),
    ("1f1b", _early_send, {"PS309"}),
    ("1f1b", _no_send, {"PS402"}),
    ("1f1b", _swapped, {"PS403"}),
    ("1f1b", _to_itself, {"PS404", "PS405"}),
    ("1f1b", _to_nowhere, {"PS309", "PS404"}),
    ("1f1b", _to_no_rank, {"PS309", "PS404"}),
    ("1f1b", _twice, {"PS405"}),
    ("1f1b", _twice_at_the_end, {"PS405"}),
    ("1f1b", _send_first, {"PS401"}),
    ("1f1b", _no_reduction, {"PS601"}),
    ("1f1b", _reduced_twice, {"PS602"}),
    ("1f1b", _reduced_early, {"PS603"}),
    ("1f1b", _no_step, {"PS606"}),
    ("1f1b", _two_steps, {"PS606"}),
    ("1f1b", _early_step, {"PS606"}),
    ("dualpipe", _stepped_before_it_is_synced, {"PS606"}),
    ("dualpipe", _no_sync, {"PS605"}),
    ("dualpipe", _syncs_crossed, {"PS605"}),
    ("dualpipe", _synced_twice, {"PS605"}),
    ("dualpipe", _synced_early, {"PS605"}),
    ("dualpipe", _sync_with_another, {"PS402", "PS605"}),
    ("chimera2", _syncs_out_of_turn, {"PS605"}),
]


@pytest.mark.parametrize(("name", "slip", "expected"), SLIPS, ids=[slip.__name__.strip("_") for _, slip, _ in SLIPS])
def test_a_slip_in_a_program(name: str, slip: Callable[[Lists], tuple[int, int]], expected: set[str]) -> None:
    """A right program with one slip has these codes alone, and the first of them points at the slip."""
    program = base(name)
    lists = [program.instructions(rank) for rank in range(program.ranks)]
    rank, i = slip(lists)
    report = pipesched.verify(of_instructions(lists, program.placement))
    assert set(codes(report)) == expected
    assert all((rank, i + 1) in places(report, code) for code in expected - {"PS402"} or expected)


def test_other_findings_excuse_no_message() -> None:
    """A rank without work is no error, and an operation that runs twice is another one: messages are checked beside."""
    program = base("1f1b")
    lists = [program.instructions(rank) for rank in range(program.ranks)]
    _swapped(lists)
    idle = of_instructions([*lists, [Instruction(Op.STEP)]], replace(program.placement, ranks=4))
    assert set(codes(pipesched.verify(idle))) == {"PS403"}
    put(lists, 1, lists[1][at(lists, 1, "1F0")], "1B0")
    assert set(codes(pipesched.verify(of_instructions(lists, program.placement)))) == {"PS302", "PS403"}


FROZEN = """schedule middle(p = 3, m = 2)
stage s in 0 .. p on rank s
frozen 1
rank r { repeat m { F }  repeat m { if r == 1 { I } else { B } } }
"""


def test_a_frozen_stage_has_no_gradient_to_reduce() -> None:
    """A frozen stage passes gradients on and does not keep them, so it must not have a reduction; other stages need
    one."""
    program = compiler.lower(pipesched.load(pipesched.Source("middle.ps", FROZEN)))
    lists = [program.instructions(rank) for rank in range(3)]
    assert [[x.stage for x in of if x.op is Op.REDUCE_GRAD] for of in lists] == [[0], [], [2]]
    assert pipesched.verify(program).ok
    put(lists, 1, Instruction(Op.REDUCE_GRAD, 1), "STEP")
    report = pipesched.verify(of_instructions(lists, program.placement))
    assert codes(report) == ["PS303"] and "rank 1 reduces the gradients of stage 1, which is frozen" in str(report)
    take(lists, 1, "1REDUCE_GRAD")
    full = [[replace(x, op=Op.B) if x.op is Op.I else x for x in of] for of in lists]
    assert codes(pipesched.verify(of_instructions(full, program.placement))) == ["PS310", "PS310"]
    take(lists, 0, "0REDUCE_GRAD")
    assert codes(pipesched.verify(of_instructions(lists, program.placement))) == ["PS601"]


def test_a_stage_whose_weight_gradients_are_missing_is_still_trained() -> None:
    """Every W of a stage is missing, and only this is reported: the stage's reduction is after its last I."""
    program = compiler.lower(pipesched.load("zb_h1", p=3, m=2))
    lists = [program.instructions(rank) for rank in range(3)]
    lists[1] = [x for x in lists[1] if x.op is not Op.W]
    assert set(codes(pipesched.verify(of_instructions(lists, program.placement)))) == {"PS301"}


@pytest.mark.parametrize(
    ("order", "wrong"),
    [
        ("F(0) F(1) B(1) B(0)", []),
        ("F(0) F(1) I(1) I(0) drain W", []),
        ("F(1) F(0) B(1) B(0)", ["F0.0"]),
        ("F(0) F(1) B(0) B(1)", ["B0.1"]),
        ("F(0) F(1) I(0) I(1) drain W", ["I0.1"]),
        ("F(1) F(0) B(0) B(1)", ["F0.0", "B0.1"]),
    ],
)
def test_gradients_of_slices_come_from_those_behind(order: str, wrong: list[str]) -> None:
    """The second forward of two slices uses the activations of the first, and the first backward uses the gradients of
    the second."""
    text = f"schedule cut(p = 1, m = 2)\nstage 0 on rank 0\nslices 2\nrank 0 {{ {order} }}\n"
    report = pipesched.verify(pipesched.Source("cut.ps", text))
    assert set(codes(report)) == ({"PS305"} if wrong else set())
    late = [label.message for d in report.diagnostics for label in d.labels]
    assert all(any(name in said for said in late) for name in wrong), late


def test_of_one_microbatch_no_gradient_is_divided() -> None:
    """The message about a reduction names the factor m if it matters: at m = 1 the gradients are not too large."""
    program = compiler.lower(pipesched.load("1f1b", p=3, m=1))
    for times, said in ((0, "not summed over data-parallel copies"), (2, "summed over data-parallel copies twice")):
        lists = [program.instructions(rank) for rank in range(program.ranks)]
        reduction = take(lists, 2, "2REDUCE_GRAD")
        for _ in range(times):
            put(lists, 2, reduction, "STEP")
        fault = pipesched.verify(of_instructions(lists, program.placement)).fault
        assert fault is not None and said in fault.message


@pytest.mark.parametrize(
    ("rank", "sync", "message"),
    [
        (
            3,
            Instruction(Op.SYNC, 0, peer=1),
            "the SYNC of stage 0 on rank 3 names rank 1 as its peer, but the other copy is on rank 0",
        ),
        (
            0,
            Instruction(Op.SYNC, 1, peer=1),
            "the SYNC of stage 1 on rank 0 names rank 1 as its peer, but the stage has no other copy",
        ),
    ],
)
def test_a_sync_of_what_has_no_such_copy(rank: int, sync: Instruction, message: str) -> None:
    """DualPipe's stage 0 is on ranks 0 and 3; its stage 1 is not on rank 0. The message reports that."""
    program = base("dualpipe")
    lists = [program.instructions(r) for r in range(program.ranks)]
    put(lists, rank, sync, "STEP")
    found = pipesched.verify(of_instructions(lists, program.placement)).diagnostics
    assert message in [d.message for d in found if d.code == "PS605"]


@pytest.mark.parametrize(
    ("name", "slip", "code"),
    [
        ("1f1b", _twice, "PS405"),
        ("1f1b", _reduced_twice, "PS602"),
        ("1f1b", _two_steps, "PS606"),
        ("dualpipe", _synced_twice, "PS605"),
    ],
    ids=["message", "reduction", "step", "sync"],
)
def test_what_is_there_twice_points_at_both(name: str, slip: Callable[[Lists], tuple[int, int]], code: str) -> None:
    """The first label is at the second operation of the name on the rank, the second label at the first."""
    program = base(name)
    lists = [program.instructions(rank) for rank in range(program.ranks)]
    rank, i = slip(lists)
    report = pipesched.verify(of_instructions(lists, program.placement))
    assert places(report, code)[:2] == [(rank, i + 1), (rank, at(lists, rank, str(lists[rank][i])) + 1)]


def test_a_message_of_a_rank_to_itself_is_no_message() -> None:
    """Both ends exist and carry the same, so only their rank is wrong: the send waits for the receive behind it."""
    program = compiler.lower(pipesched.load("interleaved", p=1, v=2, m=1))
    lists = [program.instructions(0)]
    put(lists, 0, Instruction(Op.SEND_F, 0, 0, 0), "1F0")
    put(lists, 0, Instruction(Op.RECV_F, 1, 0, 0), "1F0")
    assert codes(pipesched.verify(of_instructions(lists, program.placement))) == ["PS404", "PS404"]


def test_a_message_to_nowhere_names_the_stage_that_nobody_runs() -> None:
    """SEND_F of the last stage 2 would go to stage 3, RECV_F of stage 0 would come from stage -1."""
    for op, stage, neighbour in ((Op.SEND_F, 2, 3), (Op.RECV_F, 0, -1), (Op.SEND_B, 0, -1), (Op.RECV_B, 2, 3)):
        program = base("1f1b")
        lists = [program.instructions(rank) for rank in range(program.ranks)]
        lists[stage].append(Instruction(op, stage, 0, -1))
        found = pipesched.verify(of_instructions(lists, program.placement)).diagnostics
        assert [f"no rank runs stage {neighbour}" in d.message for d in found if d.code == "PS404"] == [True]


def test_the_very_first_instruction_counts() -> None:
    """Rank 0 runs the last stage and begins with a receive, which takes the wrong message: PS403 at its step 1."""
    placement = Placement(np.array([[1, 0]], dtype=np.int32), np.zeros(2, dtype=np.int32), 2)
    orders = [[_compute(f"{kind}{stage}.{i}") for kind in "FB" for i in range(2)] for stage in (1, 0)]
    program = compiler.lower(Schedule.from_orders(orders, placement))
    lists = [program.instructions(rank) for rank in range(2)]
    first, other = at(lists, 0, "1RECV_F0"), at(lists, 0, "1RECV_F1")
    assert first == 0
    lists[0][first], lists[0][other] = lists[0][other], lists[0][first]
    report = pipesched.verify(of_instructions(lists, placement))
    assert "PS403" in codes(report) and places(report, "PS403")[0] == (0, 1)
