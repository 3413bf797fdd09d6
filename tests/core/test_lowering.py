"""Lowering only adds messages to a compute order, and the resulting program finishes even if every
send waits for its receive.

Right schedules are random (`makers/strategies.py`), at random costs: the costs decide where messages are placed, never
whether the program is right. Finishing is asked of an explorer of all interleavings where that is small enough, of a
slow rendezvous (`oracles/simulate.py`) elsewhere, and gradients of an interpreter on symbols (`oracles/symbolic.py`).
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipesched
from pipesched import compile as compiler
from pipesched.analysis.communication import STRICT
from pipesched.analysis.dependencies import Dependencies
from pipesched.analysis.events import Events
from pipesched.analysis.pairing import pair
from pipesched.analysis.termination import holds
from pipesched.analysis.timeline import timeline
from pipesched.lower.communicate import communicate
from pipesched.model.costs import Costs
from pipesched.model.ops import Compute, Instruction, Op
from pipesched.model.schedule import Program, Schedule
from pipesched.schedule_analysis import Analysis
from tests.depth import deep
from tests.makers import strategies
from tests.makers.placements import linear
from tests.makers.programs import of_instructions
from tests.makers.random_programs import random_program
from tests.oracles import explorer, simulate, symbolic

CALM = settings(derandomize=True, deadline=None, max_examples=deep(15))
BACKWARD = (Op.I, Op.W, Op.B)


def lowered(schedule: Schedule, costs: Costs) -> Program:
    dependencies = Dependencies.of(schedule)
    return communicate(schedule, dependencies, timeline(schedule, dependencies, costs.ticks(schedule.stages)))


@st.composite
def programs(draw: st.DrawFn) -> tuple[Schedule, Program]:
    """Return a right schedule, one in five without any backward, and its program at random costs."""
    schedule = draw(strategies.schedules())
    if draw(st.integers(0, 4)) == 0:
        orders = [
            [Compute(x.op, x.stage, x.microbatch) for x in o if x.op is Op.F] for o in simulate.orders_of(schedule)
        ]
        schedule = Schedule.from_orders(orders, schedule.placement, "forwards")
    return schedule, lowered(schedule, draw(strategies.costs(schedule.stages)))


def lists_of(program: Program) -> list[list[Instruction]]:
    return [program.instructions(rank) for rank in range(program.ranks)]


def name(x: Instruction) -> tuple[str, int, int]:
    """Return the content of a message: an activation or a gradient, its stage and its microbatch."""
    back = x.op in (Op.SEND_B, Op.RECV_B)
    producer = x.stage if x.op.send else x.stage + 1 if back else x.stage - 1
    return "gradient" if back else "activation", producer, x.microbatch


@CALM
@given(programs())
def test_without_its_messages_a_program_is_its_schedule(made: tuple[Schedule, Program]) -> None:
    """Without its messages every rank's list is the original order, overlap pairs included."""
    schedule, program = made
    left = [[Compute(x.op, x.stage, x.microbatch, x.second) for x in li if x.op.compute] for li in lists_of(program)]
    assert left == simulate.orders_of(schedule)
    assert simulate.orders_of(program.computes) == simulate.orders_of(schedule)
    assert program.placement is schedule.placement and program.name == schedule.name


@CALM
@given(programs())
def test_every_edge_between_ranks_is_one_message(made: tuple[Schedule, Program]) -> None:
    """Each edge has one SEND after its producer and one RECV before its consumer, each with the stage of its own rank;
    there are no others."""
    schedule, program = made
    lists, orders = lists_of(program), simulate.orders_of(schedule)
    at = {(rank, str(x)): i for rank, li in enumerate(lists) for i, x in enumerate(li)}
    expected = 0
    for (rank, i), (there, j) in simulate.producers(orders, schedule.stages).items():
        if rank == there:
            continue
        user, maker = orders[rank][i], orders[there][j]
        letter = "F" if user.op is Op.F else "B"
        send, receive = (
            (there, f"{maker.stage}SEND_{letter}{maker.microbatch}"),
            (rank, f"{user.stage}RECV_{letter}{user.microbatch}"),
        )
        made_at, used_at = (
            (there, f"{maker.stage}{maker.op.name}{maker.microbatch}"),
            (rank, f"{user.stage}{user.op.name}{user.microbatch}"),
        )
        assert at[made_at] < at[send] and at[receive] < at[used_at]
        assert lists[there][at[send]].peer == rank and lists[rank][at[receive]].peer == there
        expected += 1
    for side in (program.sends, program.receives):
        assert int(np.count_nonzero(side)) == expected
    assert program.messages == expected


@CALM
@given(programs())
def test_messages_arrive_in_the_order_of_the_sends(made: tuple[Schedule, Program]) -> None:
    """The i-th SEND from a to b and the i-th RECV of b from a carry the same message."""
    sent, received = defaultdict(list), defaultdict(list)
    for rank, li in enumerate(lists_of(made[1])):
        for x in li:
            if x.op.send:
                sent[rank, x.peer].append(name(x))
            elif x.op.receive:
                received[x.peer, rank].append(name(x))
    assert sent == received


@CALM
@given(programs())
def test_reductions_syncs_and_steps_come_once_and_last(made: tuple[Schedule, Program]) -> None:
    """REDUCE_GRAD of a stage follows its last W or B; SYNC is on both copies, ascending; STEP ends every list."""
    schedule, program = made
    trains = any(x.op in BACKWARD for order in simulate.orders_of(schedule) for x in order)
    homes = [set(schedule.placement.rank_of[:, stage].tolist()) for stage in range(schedule.stages)]
    for rank, li in enumerate(lists_of(program)):
        stages = {x.stage for x in li if x.op in (Op.W, Op.B)}
        reduced = [x.stage for x in li if x.op is Op.REDUCE_GRAD]
        assert sorted(reduced) == sorted(stages)
        for stage in stages:
            last = max(i for i, x in enumerate(li) if x.op in (Op.W, Op.B) and x.stage == stage)
            assert li.index(Instruction(Op.REDUCE_GRAD, stage)) > last
        twins = [stage for stage, home in enumerate(homes) if len(home) == 2 and rank in home]
        ending = [Instruction(Op.SYNC, stage, peer=min(homes[stage] - {rank})) for stage in twins]
        ending.append(Instruction(Op.STEP))
        assert li[len(li) - len(ending) :] == ending if trains else not reduced
        assert sum(x.op in (Op.SYNC, Op.STEP) for x in li) == (len(ending) if trains else 0)


@pytest.mark.parametrize("costs", ["F=1,B=2", "F=0,B=0", "F=1,I=1,W=0"])
@pytest.mark.parametrize("name", ["1f1b", "gpipe", "interleaved"])
def test_a_reduction_follows_the_messages_of_its_instant(name: str, costs: str) -> None:
    """The gradient of the last backward is sent before the rank reduces, even if operations take no time."""
    program = Analysis(pipesched.load(name, p=4, m=4), Costs.parse(costs)).program
    assert program is not None
    for li in lists_of(program):
        for at, x in enumerate(li):
            if x.op is Op.REDUCE_GRAD and x.stage:
                last = max(i for i, y in enumerate(li) if y.op is Op.B and y.stage == x.stage)
                assert Op.SEND_B in {y.op for y in li[last:at] if y.stage == x.stage}, " ".join(map(str, li))


def test_copies_without_a_backward_sum_nothing() -> None:
    """Only the forwards of DualPipe, whose stages have two copies: no SYNC, and `verify` accepts the program."""
    schedule = pipesched.load("dualpipe", p=4, m=8)
    orders = [[Compute(x.op, x.stage, x.microbatch) for x in o if x.op is Op.F] for o in simulate.orders_of(schedule)]
    program = compiler.lower(Schedule.from_orders(orders, schedule.placement, "forwards"))
    assert not (program.op == Op.SYNC).any() and pipesched.verify(program).ok


def test_the_gradients_of_four_copies_are_summed() -> None:
    """Gradients are summed in pairs, then the sums are: each rank steps with the gradients of all, once."""
    for p, m in ((4, 4), (8, 8)):
        program = compiler.lower(pipesched.load("chimera2", p=p, m=m))
        assert simulate.finishes(program) and symbolic.right(program)


@CALM
@given(programs())
def test_a_lowered_program_finishes_and_trains_like_the_undivided_model(made: tuple[Schedule, Program]) -> None:
    """The program finishes under rendezvous, hence everywhere, and every stage gets the gradient of every microbatch
    once."""
    assert simulate.finishes(made[1])
    assert symbolic.right(made[1])


@pytest.mark.parametrize("first", range(0, deep(120), 30))
def test_every_interleaving_of_a_small_program_finishes(first: int) -> None:
    """The explorer finds no other result, under any model."""
    for seed in range(first, first + 30):
        schedule = strategies.random_schedule(seed, ranks=3, microbatches=2)
        program = lowered(schedule, Costs.parse(("F=1", "F=0,I=0,W=0", "F=2,C=3", "F=1,W=0,C=1/2")[seed % 4]))
        if int(np.prod(np.diff(program.start) + 1)) > 20_000:
            continue
        for model in ("strict", "buffered(1)"):
            assert explorer.holds(program, model)


@CALM
@given(programs())
def test_our_own_clock_proves_our_program(made: tuple[Schedule, Program]) -> None:
    """The instants of the lowering rise on each rank and agree at both ends, which proves that it finishes."""
    program = made[1]
    assert pair(program).proved
    assert holds(program, STRICT, pair(program)) and holds(replace(program, clock=None), STRICT, pair(program))


def certificate(program: Program, clock: list[int]) -> bool:
    """Return the conditions on a clock that proves anything, written out directly."""
    lists = lists_of(program)
    cut = program.start.tolist()
    of = {(rank, i): clock[cut[rank] + i] for rank, li in enumerate(lists) for i in range(len(li))}
    rises = all(of[rank, i] < of[rank, i + 1] for rank, li in enumerate(lists) for i in range(len(li) - 1))
    partners = simulate.partners(lists)
    kinds = [(of[rank, i], lists[rank][i].op is Op.SYNC) for rank, i in partners]
    alone = len(set(kinds)) * 2 == len(kinds)  # no two messages, and no two SYNCs, have one instant
    return rises and alone and all(of[one] == of[two] for one, two in partners.items())


def corrupted(rng: random.Random, program: Program) -> list[int]:
    """Return a clock with one to three wrong instants, or a random one."""
    assert program.clock is not None
    clock: list[int] = program.clock.tolist()
    ends = np.flatnonzero(program.sends | program.receives).tolist()
    for _ in range(rng.randint(1, 3)):
        i, j = rng.randrange(len(clock)), rng.randrange(len(clock))
        at = rng.choice(ends) if ends else i
        match rng.randrange(6):
            case 0:
                clock[i], clock[j] = clock[j], clock[i]
            case 1:
                clock[at] += rng.choice((-1, 1))
            case 2:
                clock[i] = clock[j]
            case 3:
                clock[at] = rng.randint(0, 2 * max(clock) + 2)
            case 4:
                clock[i:j] = [x + 1 for x in clock[i:j]]
            case _:
                clock = [int(x) for x in np.arange(len(clock)) - np.repeat(program.start[:-1], np.diff(program.start))]
    return clock


def test_a_corrupted_clock_proves_nothing() -> None:
    """Each of 250 corrupted clocks is accepted exactly if it is still a certificate, which most are not."""
    rng = random.Random(11)
    refused = 0
    for seed in range(deep(50)):
        program = lowered(strategies.random_schedule(seed), Costs())
        for _ in range(5):
            clock = corrupted(rng, program)
            wrong = replace(program, clock=np.array(clock, dtype=np.int64))
            assert pair(wrong).proved == certificate(program, clock)
            refused += not certificate(program, clock)
    assert refused > deep(150)


@pytest.mark.parametrize("empty", range(3))
def test_an_empty_rank_excuses_no_instant_of_its_neighbours(empty: int) -> None:
    """Beside an empty rank, each of the other instants must rise: the clock with one repeated instant proves nothing.

    Computes have no other end, with a proof or without one."""
    own = [Instruction(Op.F, 0, 0), Instruction(Op.B, 0, 0)]
    program = of_instructions([[] if rank == empty else own for rank in range(3)], linear(3, 1))
    for clock in ([0, 1, 0, 1], [0, 0, 0, 1], [0, 1, 1, 1]):
        made = pair(replace(program, clock=np.array(clock)))
        assert made.proved == (clock == [0, 1, 0, 1])
        assert made.partner.tolist() == [-1] * 4


def test_a_clock_without_one_end_of_a_message_proves_nothing() -> None:
    """Each SEND, RECV or SYNC taken out of a program leaves its partner alone, whatever the other instants are."""
    program = compiler.lower(pipesched.load("dualpipe", p=4, m=8))
    for i in np.flatnonzero(program.sends | program.receives | (program.op == Op.SYNC)).tolist():
        rest = program.taken(np.delete(np.arange(len(program)), i))
        assert program.clock is not None
        rest = replace(rest, clock=np.delete(program.clock, i))
        assert not pair(rest).proved and not holds(rest, STRICT, pair(rest))


def reordered(rng: random.Random, program: Program) -> Program:
    """Return the program with the same clock and swapped instructions."""
    lists = lists_of(program)
    for _ in range(rng.randint(1, 3)):
        li = rng.choice([li for li in lists if len(li) > 1])
        i = rng.randrange(len(li) - 1)
        j = min(len(li) - 1, i + rng.randint(1, 4))
        li[i], li[j] = li[j], li[i]
    return replace(of_instructions(lists, program.placement), clock=program.clock)


def test_an_old_clock_does_not_hide_a_deadlock() -> None:
    """250 programs with changed lists and their old clock: strict holds exactly if they meet; many do not."""
    rng = random.Random(12)
    stuck = 0
    for seed in range(deep(50)):
        schedule = strategies.random_schedule(seed)
        program = lowered(schedule, Costs())
        for _ in range(5 if max(np.diff(program.start)) > 1 else 0):
            wrong = reordered(rng, program)
            ends = simulate.finishes(wrong)
            assert holds(wrong, STRICT, pair(wrong)) == ends
            assert holds(replace(wrong, clock=None), STRICT, pair(wrong)) == ends
            stuck += not ends
    assert stuck > deep(25)


@pytest.mark.parametrize("first", range(0, deep(250), 125))
def test_the_fast_strict_run_agrees_with_that_of_all_models(first: int) -> None:
    """Random programs, with or without batches: strict holds exactly if no rank stops in the run of any model, or in
    rendezvous.
    """
    for seed in range(first, first + 125):
        program = random_program(random.Random(seed))
        ends = all(stop < 0 for stop in Events(program, STRICT).stops)
        assert holds(program, STRICT, pair(program)) == ends == simulate.finishes(program)


@CALM
@given(strategies.SEEDS.map(strategies.broken_schedule))
def test_what_is_accepted_becomes_a_right_program(schedule: Schedule) -> None:
    """A compute order with slips is rejected, or it can be lowered and trains like the undivided model."""
    if pipesched.verify(schedule).ok:
        program = compiler.lower(schedule)
        assert symbolic.right(program) and simulate.finishes(program)


@pytest.mark.nightly
def test_both_verdicts_are_there_among_the_broken() -> None:
    """The law above is not empty: some of these are accepted, and most are not."""
    good = sum(pipesched.verify(strategies.broken_schedule(seed)).ok for seed in range(150))
    assert 4 <= good <= 75


def test_a_cycle_of_computes_has_no_program() -> None:
    """Lowering refuses an order that deadlocks, with the cycle."""
    stuck = next(s for s in map(strategies.shuffled_schedule, range(100)) if not _finishes(s))
    with pytest.raises(pipesched.PipeschedError) as error:
        compiler.lower(stuck)
    assert "PS306" in [d.code for d in error.value.diagnostics]


def _finishes(schedule: Schedule) -> bool:
    return simulate.run(schedule, simulate.rows(Costs(), schedule.stages)).stuck == [None] * schedule.ranks


def test_an_instruction_points_at_the_line_of_its_operation() -> None:
    """A SEND has the source position of its producer, a RECV the position of its consumer."""
    schedule = pipesched.load("zb_h1", p=3, m=4)
    program = compiler.lower(schedule)
    places = {(int(schedule.rank[i]), str(schedule[i])): schedule.origin.place(i) for i in range(len(schedule))}
    for i in np.flatnonzero(program.sends | program.receives).tolist():
        x, rank = program[i], int(program.rank[i])
        letter = "F" if x.op in (Op.SEND_F, Op.RECV_F) else "I"
        assert program.origin.place(i) == places[rank, f"{letter}{x.stage}.{x.microbatch}"]
