"""The runtime runs consecutive steps, sends messages in every supported way, and refuses misuse before and during a
run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

import pipesched
from pipesched.compile import lower
from pipesched.runtime.execute.building import check_modules
from pipesched.runtime.execute.errors import RunError
from pipesched.runtime.execute.executor import Runtime
from pipesched.runtime.execute.messages import SYNC, Message, Tags
from pipesched.stream import Instruction, Stream, loads
from pipesched.support.source import Source
from tests.depth import some
from tests.runtime import cases, faults
from tests.runtime.harness import Ranks, ranks_of
from tests.runtime.streams import SCHEDULES, published, stream_of


@pytest.fixture
def ranks() -> Iterator[Ranks]:
    with ranks_of(2) as made:
        yield made


def test_training_goes_on_as_undivided(ranks: Ranks) -> None:
    """After three steps of an optimizer with accumulating gradients, the weights are those of undivided training.

    With or without receives posted ahead; on shared communicators with tags, or on one per direction without.
    """
    for name in SCHEDULES:
        stream = stream_of(name, p=2, m=4)
        for early, separate in some([(0, False), (2, False), (1000, False), (0, True), (2, True)], 2):
            for rank, result in enumerate(ranks.run(2, cases.steps, stream, early, separate)):
                case = (name, early, separate, rank)
                assert result["weights"] <= 1e-12, case
                assert result["error"] <= 1e-12, case
                assert result["losses"] <= 1e-12, case
                assert result["seen"], case
                posted = [early + (x.op[:4] == "RECV") for x in stream.ranks[rank][:1]] + [len(received(stream, rank))]
                assert result["ahead"] == min(posted), case
                assert result["ends"] == (len(stream.ranks[rank]), None, ()), case


def received(stream: Stream, rank: int) -> list[Instruction]:
    return [x for x in stream.ranks[rank] if x.op.startswith("RECV")]


REFUSED = {
    "shape": "activation 0 of stage 0 is float64[3, 5], but the other end expects float64[3, 6]",
    "dtype": "activation 0 of stage 0 is float32[3, 6], but the other end expects float64[3, 6]",
    "missing": "rank 0 has the (route, stage) pairs [(0, 0)], but modules were given for []",
    "microbatches": "inputs of shape [11, 6] cannot be split into 4 microbatches",
    "boundaries": "1 boundaries for 2 stages",
}
REFUSED_EVERYWHERE = {
    "raising": "stage 0 cannot run on",
    "no tensor": "the output of stage 0 is not a tensor or a tuple of tensors: dict",
    "copies": "the copies of stage 0 on ranks 0 and 1 have different weights",
    "values": "the copies of stage 0 on ranks 0 and 1 begin with different values",
}
REASONS = {
    "copies": "rank 0 has 'norm.weight' float64[6], rank 1 has 'weight' float32[6, 6]",
    "values": "'wide.weight' differs",
}


@pytest.mark.parametrize("fault", list(REFUSED))
def test_what_is_refused(fault: str) -> None:
    """A model that does not fit is refused on its rank, with both sides of the difference, before it posts."""
    with ranks_of(2) as ranks:
        first, _ = ranks.run(2, faults.refused, stream_of("1f1b", p=2, m=4), fault, timeout=1)
    assert REFUSED[fault] in first


def test_an_instruction_without_a_function_is_refused() -> None:
    """Every rank refuses a kind that the runtime lacks before its first step, at the place of the instruction."""
    made = stream_of("1f1b", p=2, m=2)
    strange = replace(made.ranks[1][1], op="X")
    stream = replace(made, ranks=(made.ranks[0], (made.ranks[1][0], strange, *made.ranks[1][2:])))
    for rank in range(2):
        with pytest.raises(RunError) as caught:
            Runtime(stream, {(0, rank): nn.Linear(2, 2)}, rank=rank)
        fault = caught.value.fault
        assert (fault.code, str(fault.place)) == ("PS831", "rank 1, instruction 2 (1X0)")


def test_a_stage_on_two_routes_of_a_rank_is_one_module() -> None:
    """Two modules would each get a part of the gradient."""
    parts = {"a": "0 .. 1", "b": "1 .. m"}
    routes = [f"route {name}: stage 0 on rank 0 for microbatch {part}" for name, part in parts.items()]
    text = "\n".join(["schedule x(m)", *routes, "rank 0 { F[a]  F[b]  B[a]  B[b] }"])
    stream, module = loads(pipesched.emit(Source("x.ps", text), m=2)), nn.Linear(2, 2)
    check_modules(stream, {(0, 0): module, (1, 0): module}, 0, None)
    with pytest.raises(ValueError, match="stage 0 on several routes: give one module"):
        check_modules(stream, {(0, 0): module, (1, 0): nn.Linear(2, 2)}, 0, None)


@pytest.mark.parametrize("fault", list(REFUSED_EVERYWHERE))
def test_what_every_rank_refuses(ranks: Ranks, fault: str) -> None:
    """A fault found while the runtime is built ends every rank with the same message."""
    stream = stream_of("dualpipe", p=2, m=4) if fault in ("copies", "values") else stream_of("1f1b", p=2, m=4)
    first, second = ranks.run(2, faults.refused, stream, fault)
    assert first == second
    assert REFUSED_EVERYWHERE[fault] in first
    assert REASONS.get(fault, "") in first


ALTERED: dict[str, tuple[int, Callable[[list[Instruction]], list[Instruction]], str]] = {
    "sent before it is made": (
        0,
        lambda x: [x[1], x[0], *x[2:]],
        "activation 0 of stage 0, rank 0 to rank 1 does not exist",
    ),
    "not received": (1, lambda x: x[1:], "no receive is posted for activation 0 of stage 0, rank 0 to rank 1"),
    "no forward": (1, lambda x: [y for y in x if y.op != "F"], "stage 1 keeps nothing of microbatch 0"),
    "backward twice": (1, lambda x: [z for y in x for z in [y] * (1 + (y.op == "B"))], "keeps nothing of microbatch 0"),
}


@pytest.mark.parametrize("what", list(ALTERED))
def test_lists_that_ask_for_what_is_not_there(what: str) -> None:
    """A list that the verifier rejects, run all the same, reports the missing value on its rank."""
    rank, alter, said = ALTERED[what]
    stream = stream_of("1f1b", p=2, m=4)
    lists = [tuple(alter(list(x))) if i == rank else x for i, x in enumerate(stream.ranks)]
    with ranks_of(2) as ranks:
        found = ranks.run(2, faults.refused, replace(stream, ranks=tuple(lists)), "", timeout=1)
    assert found[rank].startswith("LookupError") and said in found[rank]


def test_no_process_outlives_a_case_that_hangs(ranks: Ranks) -> None:
    """A case that exceeds its limit fails, its processes end, and the next case has new ones."""
    pids = ranks.pids
    with pytest.raises(AssertionError, match="rank 1: did not finish"):
        ranks.run(2, cases.stuck, limit=0.5)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    found = ranks.run(2, cases.gradients, stream_of("1f1b", p=2, m=2))
    assert max(result["error"] for result in found) <= 1e-12


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_published_streams_are_those_that_run_here(name: str) -> None:
    """The golden stream of each schedule has the instructions of the tests' stream at its size."""
    (path,) = (Path(__file__).parents[2] / "emit" / "v2").glob(f"{name}_p*.json")
    golden = loads(path.read_text("utf-8"))
    assert golden.ranks == stream_of(name, **golden.parameters).ranks


def test_forward_only(ranks: Ranks) -> None:
    """A program without backward returns the loss, and keeps nothing for a backward."""
    text = """
schedule inference(p, m)
stage s in 0 .. p on rank s
rank r { repeat m { F } }
"""
    schedule = pipesched.load(Source("inference.ps", text), p=2, m=3)
    for mine, whole, clean in ranks.run(2, cases.forward_only, published(lower(schedule))):
        assert abs(mine - whole) <= 1e-12 * whole
        assert clean


@pytest.mark.parametrize("name", SCHEDULES)
def test_tags(name: str) -> None:
    """Both ends of a message give it one name, and no two tensors on their way between two ranks have one tag."""
    stream = stream_of(name, p=4, m=8)
    tags = Tags.of(stream, width=3)
    sent, received = set(), set()
    for rank, instructions in enumerate(stream.ranks):
        for x in instructions:
            if x.op.startswith("SEND"):
                sent.add(Message.of(x, rank))
            if x.op.startswith("RECV"):
                received.add(Message.of(x, rank))
    assert sent == received and sent
    others = {Message(SYNC, 0, stage, -1, 0, 1) for stage in range(stream.stages)}
    numbers = [tags.of_tensor(message, index) for message in sent for index in range(3)]
    numbers += [tags.of_tensor(message, 0) for message in others]
    assert len(set(numbers)) == len(numbers)
    assert min(numbers) >= 0 and max(numbers) < 2**31
