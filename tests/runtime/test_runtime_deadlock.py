"""gloo with blocking sends and receives in list order agrees with the verdict of `verify` under strict."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipesched.analysis.communication import ASYNC
from pipesched.analysis.termination import holds
from pipesched.model.schedule import Program
from tests.depth import deep
from tests.runtime import cases, moved
from tests.runtime.harness import Ranks, ranks_of
from tests.runtime.streams import published

DEADLOCKED, SAFE = 20, deep(12)
AT_ONCE = 4
TIMEOUT = 1.0  # seconds without progress that count as a hang: thousands of times an instruction's duration


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with ranks_of(4) as made:
        yield made


def place(program: Program, rank: int, step: int) -> int:
    """Return the index in the stream's list, where an overlap pair is one instruction, of a step of the program."""
    return sum(not x.second for x in program.instructions(rank)[: step + 1]) - 1


def test_deadlocked_programs_hang_where_predicted() -> None:
    """Each program hangs until gloo gives up, with every rank at the predicted instruction, or past its list's end.

    A program that hangs needs no CPU, so a few do at the same time.
    """
    cases_left = list(enumerate(moved.drawn(1, True, DEADLOCKED)))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in pool.map(_hang, [cases_left[i::AT_ONCE] for i in range(AT_ONCE)]):
            pass


def _hang(given: list[tuple[int, tuple[Program, tuple[int, ...]]]]) -> None:
    with ranks_of(4) as ranks:
        for number, (program, stop) in given:
            stream = published(program)
            found = ranks.run(program.ranks, cases.blocked, stream, timeout=TIMEOUT, limit=TIMEOUT + 15)
            places = [len(stream.ranks[rank]) if at < 0 else place(program, rank, at) for rank, at in enumerate(stop)]
            assert [at for at, _ in found] == places, (number, program.name)
            assert any("Timed out" in said for _, said in found), (number, program.name, found)


def test_async_programs_finish_when_posted(ranks: Ranks) -> None:
    """Programs that the verifier calls safe under async finish with posted messages, with right gradients."""
    chosen = [program for program, _ in moved.drawn(1, True, DEADLOCKED) if holds(program, ASYNC)]
    assert chosen
    for number, program in enumerate(chosen):
        found = ranks.run(program.ranks, cases.gradients, published(program))
        assert max(result["error"] for result in found) <= 1e-12, (number, program.name)


def test_safe_programs_finish(ranks: Ranks) -> None:
    """Each program finishes, with the gradients of undivided training."""
    for number, (program, _) in enumerate(moved.drawn(2, False, SAFE)):
        found = ranks.run(program.ranks, cases.gradients, published(program), "float64", True)
        assert max(result["error"] for result in found) <= 1e-12, (number, program.name)
