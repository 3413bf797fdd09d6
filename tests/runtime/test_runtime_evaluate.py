"""Evaluation with the trained modules returns ordered outputs and losses, accepts keyword inputs, and changes
nothing else."""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

import pipesched
from pipesched import stream
from pipesched.analysis.communication import ASYNC, ONE_STREAM, PAIR_STREAM, STRICT
from pipesched.analysis.pairing import pair
from pipesched.analysis.termination import holds
from pipesched.compile import lower
from pipesched.model.ops import Instruction, Op
from pipesched.model.placement import Placement
from pipesched.model.schedule import Program
from pipesched.runtime.execute.executor import forwards as forwards_of
from tests.core.test_forward_only import forwards
from tests.depth import deep, some
from tests.makers.programs import of_instructions
from tests.makers.random_programs import random_program
from tests.runtime import evaluated
from tests.runtime.harness import Ranks, ranks_of
from tests.runtime.streams import published, stream_of

MODELS = (STRICT, ONE_STREAM, PAIR_STREAM, ASYNC)
FORWARD = (Op.F, Op.SEND_F, Op.RECV_F)
SIZES: dict[str, dict[str, int]] = {
    "1f1b-p1": {"p": 1, "m": 3},
    "1f1b-p2": {"p": 2, "m": 3},
    "gpipe-p3": {"p": 3, "m": 4},
    "zb_h1-p4": {"p": 4, "m": 5},
    "interleaved-p2": {"p": 2, "v": 2, "m": 4},
    "interleaved-p4": {"p": 4, "v": 2, "m": 4},
    "zb_v-p2": {"p": 2, "m": 4},
    "zb_v-p4": {"p": 4, "m": 8},
    "dualpipe-p4": {"p": 4, "m": 8},
    "dualpipev-p2": {"p": 2, "m": 5},
}


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with ranks_of(4) as made:
        yield made


@pytest.mark.parametrize(
    ("given", "scored", "alone"), some(list(itertools.product(SIZES, (True, False), (False, True))), 3, usual=5)
)
def test_outputs_are_those_of_the_undivided_model(ranks: Ranks, given: str, scored: bool, alone: bool) -> None:
    """With the stream of a training, which trains right before and after, and with a stream of forwards alone.

    Every microbatch's output comes back once, in order, on the rank of the last stage; the loss comes on all. Nothing
    is kept for a backward, and the modes and the gradients that modules have stay.
    """
    schedule, sizes = given.partition("-")[0], SIZES[given]
    made = published(lower(forwards(pipesched.load(schedule, **sizes)))) if alone else stream_of(schedule, **sizes)
    found = ranks.run(sizes["p"], evaluated.evaluated, made, scored)

    assert max(one["outputs"] for one in found) <= 1e-12
    assert sum(one["count"] for one in found) == sizes["m"]
    assert sum(one["count"] > 0 for one in found) == (2 if schedule == "dualpipe" else 1)
    assert max(one["losses"] for one in found) <= 1e-12
    assert max(one["trained"] for one in found) <= 1e-12
    assert all(one["modes"] and one["unchanged"] and one["kept"] == 0 for one in found)
    assert {train for one in found for train in one["train"]} == {not alone}


REFUSED = {
    "no loss": "targets were given without a loss: set `Runtime(loss=…)`",
    "keyword": "none of the stages on this rank takes the keyword 'maks'",
    "no inputs": "inputs are needed on this rank: it has the first stage",
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(what: str) -> None:
    """On the rank of the mistake, and before anything is computed."""
    with ranks_of(1) as ranks:
        assert ranks.run(1, evaluated.refused, stream_of("1f1b", p=1, m=2), what) == [REFUSED[what]]


def of_stream(lists: list[tuple[stream.Instruction, ...]], placement: Placement) -> Program:
    """Return a program from its published form."""

    def records() -> Iterator[list[Instruction]]:
        for order in lists:
            made = []
            for group, x in enumerate(order):
                for part in x.parts or (x,):
                    batch = group if x.op == stream.BATCH else -1
                    one = Instruction(Op[part.op], part.stage, part.microbatch, part.peer, batch, part.communicator)
                    made.append(replace(one, second=x.op == "OVERLAP" and part is x.parts[1]))
            yield made

    return of_instructions(list(records()), placement)


def test_the_forwards_of_what_finishes_finish() -> None:
    """Under every model, random programs with batches and communicators keep exactly their forwards, with their
    messages.
    """
    rng = random.Random(5)
    seen = Counter[str]()
    while min((seen[str(model)] for model in MODELS), default=0) < deep(15):
        program = random_program(rng)
        partner = pair(program).partner.tolist()
        kinds = [(program[i].op in FORWARD, program[j].op in FORWARD) for i, j in enumerate(partner) if j >= 0]
        if any(a != b for a, b in kinds):
            continue
        lists = published(program).ranks
        made = [forwards_of(order) for order in lists]
        kept = [[str(part) for x in order for part in x.parts or (x,)] for order in made]
        every = [[str(part) for x in order for part in x.parts or (x,)] for order in lists]
        assert kept == [[x for x in order if re.fullmatch(r"\d+(F|SEND_F|RECV_F)\d+", x)] for order in every]
        forward = of_stream(made, program.placement)
        for model in MODELS:
            if holds(program, model):
                seen[str(model)] += 1
                assert holds(forward, model), (model, every)
