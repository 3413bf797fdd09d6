"""The times of programs whose messages wait in queues equal those of a simulation with queues, under every model.

A few hundred programs here; `pytest --depth 10` tries as many as are asked for.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from fractions import Fraction
from unittest import mock

import pytest

import pipesched
from pipesched.__main__ import main
from pipesched.analysis import lists
from pipesched.analysis.communication import parse_model
from pipesched.compile import lower
from pipesched.model.costs import Costs
from pipesched.model.grid import Grid
from pipesched.model.schedule import Program
from pipesched.schedule_analysis import Analysis
from pipesched.support.source import Source
from tests.depth import deep
from tests.makers import strategies
from tests.makers.programs import of_instructions
from tests.makers.random_programs import random_program
from tests.oracles import queues
from tests.oracles.explorer import MODELS

POSTED = ("one-stream", "pair-stream", "async")


def costs(rng: random.Random, program: Program) -> tuple[Costs, queues.Cost]:
    """Return the costs of every kind, by stage, or by stage and microbatch, sometimes 0. As given, and as looked up."""
    finer = rng.random() < 0.5
    microbatches = program.placement.microbatches

    def rows() -> list[list[Fraction]]:
        each = [[Fraction(rng.choice((0, 1, 1, 2, 3, 5)), rng.choice((1, 2))) for _ in range(microbatches)]]
        each += [[rng.choice(each[0])] * microbatches for _ in range(program.stages - 1)]
        return each if finer else [[row[0]] * microbatches for row in each]

    kinds = [*"FIWBC", *(["FB"] if rng.random() < 0.5 else [])]
    table = {kind: rows() for kind in kinds}
    given = {kind: Grid.of(x) if finer else tuple(row[0] for row in x) for kind, x in table.items()}
    return Costs(given), lambda kind, stage, microbatch: table[kind][stage][microbatch] if kind in table else None


def found(program: Program, model: str, given: Costs) -> Fraction | None:
    return Analysis(program.schedule, given, model=parse_model(model)).queued


@pytest.mark.parametrize("first", range(0, deep(50), 25))
def test_random_programs_take_as_long_as_their_queues_do(first: int) -> None:
    """Under every model the makespan equals the simulated one, and is None exactly if some rank never finishes."""
    for seed in range(first, first + 25):
        rng = random.Random(seed)
        program = random_program(rng)
        given, cost = costs(rng, program)
        for model in MODELS:
            assert found(program, model, given) == queues.makespan(program, model, cost), (seed, model)


def fused(rng: random.Random, program: Program) -> Program:
    """Return the fuse neighbouring messages into batches, at both ends, sometimes with a communicator per kind."""
    split = rng.random() < 0.5
    lists = []
    for rank in range(program.ranks):
        listed = [
            replace(x, communicator=int(split and x.op.name.endswith("_B"))) if x.op.send or x.op.receive else x
            for x in program.instructions(rank)
        ]
        for i in range(1, len(listed)):
            if all(x.op.send or x.op.receive for x in listed[i - 1 : i + 1]) and rng.random() < 0.6:
                group = listed[i - 1].group if listed[i - 1].group >= 0 else i
                listed[i - 1 : i + 1] = [replace(x, group=group) for x in listed[i - 1 : i + 1]]
        lists.append(listed)
    return of_instructions(lists, program.placement, program.name)


def test_right_programs_take_as_long_as_their_queues_do() -> None:
    """Lowered random schedules, fused at random, take as long as simulated, and never less than the ideal."""
    ended = longer = 0
    for seed in range(deep(15)):
        rng = random.Random(seed)
        program = fused(rng, lower(strategies.random_schedule(seed, ranks=3, microbatches=3)))
        given, cost = costs(rng, program)
        for model in MODELS:
            time = found(program, model, given)
            assert time == queues.makespan(program, model, cost), (seed, model)
            if time is not None:
                ideal = Analysis(program.computes, given).makespan
                assert time >= ideal
                ended, longer = ended + 1, longer + (time > ideal)
    assert ended > longer > deep(10)


def test_what_is_lowered_takes_as_long_as_its_queues_do() -> None:
    """Ends raised from the timeline of a schedule equal the ends of a run and of a simulation; often they are the
    schedule's own."""
    ideal = 0
    for seed in range(deep(10)):
        rng = random.Random(seed)
        schedule = strategies.random_schedule(seed, ranks=3, microbatches=3)
        given, cost = costs(rng, lower(schedule))
        for model in MODELS:
            made = Analysis(schedule, given, model=parse_model(model))
            assert made.program is not None
            assert made.queued == queues.makespan(made.program, model, cost), (seed, model)
            with mock.patch.object(lists, "RAISED", 0):
                assert Analysis(schedule, given, model=parse_model(model)).queued == made.queued
            ideal += made.queued == made.makespan
    assert ideal > deep(10)


def test_a_message_heads_its_queue_at_both_ends() -> None:
    """By hand, C = 2, F = 1: rank 0 posts two sends at 1 and 2, rank 1 both receives at 0. In one queue the second
    begins when the first is over; without order both are in transit together, and under strict rank 0 waits in each.
    """
    text = "rank 0: F0.0 send:F0.0>1 F0.1 send:F0.1>1\nrank 1: recv:F0.0<0 recv:F0.1<0 F1.0 F1.1\n"
    batch = text.replace("recv:F0.0<0 recv:F0.1<0", "( recv:F0.0<0 recv:F0.1<0 )")
    apart = text.replace("send:F0.1>1", "send:F0.1>1@1").replace("recv:F0.1<0", "recv:F0.1<0@1")
    times = {model: makespan_of(text, model) for model in ("strict", "buffered(1)", *POSTED)}
    assert times == {"strict": 8, "buffered(1)": 7, "one-stream": 6, "pair-stream": 6, "async": 5}
    assert makespan_of(batch, "one-stream") == 7  # rank 1 waits for its whole batch, and rank 0 has one after the other
    assert makespan_of(apart, "one-stream") == 5


def makespan_of(text: str, model: str) -> Fraction | None:
    report = pipesched.verify(Source("two.txt", text), comm=model, costs="F=1,C=2")
    assert report.ok and report.communication is not None
    return report.communication.makespan


def test_the_report_has_it_where_a_model_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Only with `--comm` the time is in the text, on the line of many sizes, and in JSON."""
    assert main(["verify", "1f1b", "--p", "4", "--m", "8", "--cost", "C=1"]) == 0
    assert "turn" not in capsys.readouterr().out
    assert main(["verify", "1f1b", "--p", "4", "--m", "8", "--cost", "C=1", "--comm", "strict"]) == 0
    (line,) = [x for x in capsys.readouterr().out.splitlines() if "turn" in x]
    assert main(["verify", "1f1b", "--p", "4", "--m", "8", "--cost", "C=1", "--comm", "strict", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    queued, ideal = said["communication"]["makespan"], said["time"]["makespan"]
    assert queued > ideal and line.split()[:4] == ["makespan", str(queued), "under", "strict,"]
    assert main(["verify", "1f1b", "--p", "2,4", "--m", "8", "--cost", "C=1", "--comm", "strict"]) == 0
    assert f"makespan {ideal}   strict {queued}   bubble" in capsys.readouterr().out
