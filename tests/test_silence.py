"""What the last words of ranks mean, and what their silence means: stalls, losses, other streams. No process starts."""

from __future__ import annotations

import pytest

from pipesched.runtime.agree import Card, disagreement
from pipesched.runtime.errors import Fault, Place
from pipesched.runtime.launch import Break, Outcome, RankResult
from pipesched.runtime.silence import DONE, IDLE, RUNNING, Beat, Silence


def beat(rank: int, number: int, moves: int, state: str = RUNNING, waits: str = "") -> Beat:
    return Beat(Place(rank, 1, 7, "0F1", waits), number, moves, state)


def test_only_a_standstill_of_all_is_a_stall() -> None:
    """As long as one rank finishes instructions nobody has stalled, however long another one waits."""
    silence = Silence.begin(2, 3.0, 0.0)

    for second in range(10):
        assert silence.look({0: beat(0, second, 5), 1: beat(1, second, second)}, float(second)) is None
    assert silence.look({0: beat(0, 10, 5), 1: beat(1, 10, 9)}, 11.9) is None
    fault = silence.look({0: beat(0, 11, 5, waits="waits for a message"), 1: beat(1, 11, 9)}, 12.0)
    assert fault is not None
    assert (fault.code, fault.place and fault.place.rank) == ("PS822", 1), "the rank that waits for nobody is the cause"


def test_between_steps_nobody_stalls() -> None:
    """A long evaluation or a slow data loader on all ranks is no stall; one that keeps others waiting is."""
    silence = Silence.begin(2, 3.0, 0.0)

    for second in range(10):
        assert silence.look({rank: beat(rank, second, 8, IDLE) for rank in (0, 1)}, float(second)) is None
    waiting = [silence.look({0: beat(0, n, 8), 1: beat(1, n, 8, IDLE)}, float(n)) for n in range(10, 14)]
    assert [fault and fault.code for fault in waiting] == [None, None, None, "PS822"]


def test_a_rank_that_writes_no_more_is_lost() -> None:
    """Also one that has never written; one that has said that it is done is not missed."""
    silence = Silence.begin(3, 3.0, 0.0)
    beats = {0: beat(0, 1, 1), 2: beat(2, 1, 1, DONE)}

    assert silence.look(beats, 1.0) is None
    fault = silence.look({0: beat(0, 2, 2), 2: beats[2]}, 3.0)
    assert fault is not None
    assert (fault.code, fault.place and fault.place.rank) == ("PS823", 1)


def test_most_ranks_are_right() -> None:
    """Who differs from most is named; the cards of all prove it."""
    cards = [Card(mark, "x", {}) for mark in "aabaca"]
    fault = disagreement(cards)

    assert disagreement(cards[:2]) is None
    assert fault is not None
    assert fault.message.startswith("ranks 2 and 4 run another stream")
    assert len(fault.notes) == 6


def test_a_fault_crosses_processes() -> None:
    """What `dumps` writes `loads` reads, with and without a place."""
    for place in (None, Place(1, 2, 3, "0F1", "waits for it")):
        fault = Fault("PS822", "nothing moves", place, ("a", "b"), "help")
        assert Fault.loads(fault.dumps()) == fault


@pytest.mark.parametrize("text", ["kill", "kill@", "kill@x", "kill@1:", "kill@1:2:3", "fly@1:2", "kill@-1", "kill@²"])
def test_other_faults_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not KIND@RANK"):
        Break.parse(text)


def test_what_a_rank_cannot_say_the_supervisor_says() -> None:
    """Without a word of any rank the first one that ended is lost; with one, the silent ones are noted beside it."""
    killed, stuck = RankResult(2, -9, None, None, 1.0), RankResult(0, -9, None, None, 6.0, stopped=True)
    told = RankResult(1, 1, None, Fault("PS825", "ValueError", Place(1)), 2.0)

    alone = Outcome((stuck, killed)).fault
    assert alone is not None
    assert (alone.code, alone.message) == ("PS823", "rank 2 was killed by SIGKILL")
    beside = Outcome((stuck, told, killed)).fault
    assert beside is not None
    assert beside.code == "PS825"
    assert beside.notes == ("rank 2 was killed by SIGKILL", "rank 0 did not end by itself and was killed")
