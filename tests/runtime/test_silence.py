"""Stalls, lost ranks and different streams are recognized from the last reports of ranks and from their silence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipesched.runtime.execute.errors import Fault, Place
from pipesched.runtime.execute.fingerprints import Card, disagreement
from pipesched.runtime.execute.launch import Break, Outcome, RankResult
from pipesched.runtime.execute.silence import DONE, IDLE, RUNNING, Beat, Silence

pytestmark = pytest.mark.quick


def beat(rank: int, moves: int, state: str = RUNNING, waits: str = "", **more: Any) -> Beat:
    return Beat(Place(rank, 1, 7, "0F1", waits), moves, more.pop("steps", 1), state, **more)


def heard(silence: Silence, now: float, *beats: Beat) -> Fault | None:
    """Return the verdict after these beats."""
    for one in beats:
        silence.hear(one.place.rank, one, now)
    return silence.judge(now)


def test_only_a_standstill_of_all_is_a_stall() -> None:
    """While any rank finishes instructions there is no stall, no matter how long another one waits."""
    silence = Silence.begin(2, 3.0, 0.0)
    waiting = beat(0, 5, waits="waits for a message")

    for second in range(10):
        assert heard(silence, second, waiting, beat(1, second)) is None
    assert heard(silence, 11.9, waiting, beat(1, 9)) is None
    fault = heard(silence, 12.0, waiting, beat(1, 9))
    assert fault is not None
    assert (fault.code, fault.place and fault.place.rank) == ("PS822", 1), "the rank that waits for nobody is the cause"


def test_between_steps_nobody_stalls() -> None:
    """A long evaluation or a slow data loader on all ranks is not a stall; one that keeps others
    waiting is the cause.
    """
    silence = Silence.begin(2, 3.0, 0.0)
    idle = beat(1, 8, IDLE, at="at train.py:3")

    for second in range(10):
        assert heard(silence, second, beat(0, 8, IDLE), idle) is None
    faults = [heard(silence, float(n), beat(0, 8, waits="waits"), idle) for n in range(10, 14)]
    assert [fault and fault.code for fault in faults] == [None, None, None, "PS822"]
    assert "rank 1, step 1, instruction 7 (0F1): between two steps, at train.py:3" in str(faults[-1])


CAUSES = [
    ([beat(0, 1, waits="w"), beat(1, 1, waits="w")], "PS822", 0, "shows the cycle"),
    ([beat(0, 1, waits="w"), beat(1, 1), beat(2, 1, IDLE)], "PS822", 1, "larger timeout"),
    ([beat(0, 1, waits="w"), beat(1, 1, IDLE), beat(2, 1, outside=True)], "PS822", 1, "outside of the pipeline"),
    ([beat(0, 1, waits="w"), beat(1, 1, outside=True)], "PS837", 1, "another replica"),
    ([beat(0, 1, waits="w"), beat(1, 1, IDLE, outside=True)], "PS837", 1, "another replica"),
    ([beat(0, 1, steps=2), beat(1, 1, DONE, steps=2)], "PS822", 0, "larger timeout"),
]


@pytest.mark.parametrize(("beats", "code", "rank", "help"), CAUSES)
def test_the_cause_is_a_rank_that_waits_for_no_message(beats: list[Beat], code: str, rank: int, help: str) -> None:
    """A rank in an instruction comes before one outside of a step, and that before one in a collective of others;
    otherwise it is a cycle.
    """
    silence = Silence.begin(len(beats), 3.0, 0.0)

    assert heard(silence, 0.0, *beats) is None
    fault = heard(silence, 3.0, *beats)
    assert fault is not None
    assert (fault.code, fault.place and fault.place.rank) == (code, rank)
    assert help in (fault.help or "")


def test_a_rank_that_left_is_missed_by_those_who_take_another_step() -> None:
    """At once, in the step that the rank does not take, not in the one that it took."""
    silence = Silence.begin(2, 3.0, 0.0)

    assert heard(silence, 0.0, beat(0, 1, steps=4), beat(1, 1, DONE, steps=4)) is None
    assert heard(silence, 0.1, beat(0, 1, IDLE, steps=5), beat(1, 1, DONE, steps=4)) is None
    fault = heard(silence, 0.2, beat(0, 1, steps=5), beat(1, 1, DONE, steps=4))
    assert fault is not None
    assert (fault.code, fault.message) == ("PS836", "rank 1 left after 4 steps, and rank 0 is in step 5")


def test_a_rank_that_tells_nothing_is_lost() -> None:
    """A rank that has never reported is lost too, but not one that has announced its end. While one is silent no stall
    is reported.
    """
    silence = Silence.begin(3, 4.0, 0.0)

    assert heard(silence, 0.5, beat(0, 1), beat(2, 1, DONE)) is None
    for time in (1.0, 2.0, 3.0, 3.9):
        assert heard(silence, time, beat(0, 1)) is None
    fault = heard(silence, 4.0, beat(0, 1))
    assert fault is not None
    assert (fault.code, fault.place and fault.place.rank) == ("PS823", 1)


def test_a_wait_of_all_between_two_steps_is_only_told() -> None:
    """In a collective of their own, in which another replica may evaluate for long."""
    silence = Silence.begin(2, 3.0, 0.0)
    beats = [beat(rank, 1, IDLE, outside=True) for rank in (0, 1)]

    for time in (0.0, 2.0):
        assert heard(silence, time, *beats) is None and silence.waits_elsewhere(time) is None
    assert heard(silence, 3.0, *beats) is None
    assert silence.waits_elsewhere(3.0) == beats[0]


@pytest.mark.parametrize("change", [{"state": "flies"}, {"moves": "1"}, {"at": None}, {"place": None}, {"steps": 0.5}])
def test_what_is_no_beat_is_refused(change: dict[str, Any]) -> None:
    """`of` reads the output of `plain`; any other data from another process is an error of one kind."""
    sent = beat(1, 2, DONE, at="x").plain()

    assert Beat.of(json.loads(json.dumps(sent))) == beat(1, 2, DONE, at="x")
    with pytest.raises(ValueError, match="this is not"):
        Beat.of(sent | change)


def test_most_ranks_are_right() -> None:
    """The ranks that differ from the majority are named; the cards of all are the proof."""
    cards = [Card(mark, "x", {}) for mark in "aabaca"]
    fault = disagreement(cards)

    assert disagreement(cards[:2]) is None
    assert fault is not None
    assert fault.message.startswith("ranks 2 and 4 run a different stream")
    assert len(fault.notes) == 6


def test_a_fault_crosses_processes() -> None:
    """`loads` reads the output of `dumps`, with and without a place."""
    for place in (None, Place(1, 2, 3, "0F1", "waits for it")):
        fault = Fault("PS822", "nothing moves", place, ("a", "b"), "help")
        assert Fault.loads(fault.dumps()) == fault


@pytest.mark.parametrize("text", ["kill", "kill@", "kill@x", "kill@1:", "kill@1:2:3", "fly@1:2", "kill@-1", "kill@²"])
def test_other_faults_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not KIND@RANK"):
        Break.parse(text)


def test_what_a_rank_cannot_say_the_supervisor_says() -> None:
    """Without a report of any rank the first one that ended is lost; with one, the silent ones are noted."""
    killed, stuck = RankResult(2, -9, None, None, 1.0), RankResult(0, -9, None, None, 6.0, stopped=True)
    told = RankResult(1, 1, None, Fault("PS825", "ValueError", Place(1)), 2.0)

    alone = Outcome((stuck, killed)).fault
    assert alone is not None
    assert (alone.code, alone.message) == ("PS823", "rank 2 was killed by SIGKILL")
    beside = Outcome((stuck, told, killed)).fault
    assert beside is not None
    assert beside.code == "PS825"
    assert beside.notes == ("rank 2 was killed by SIGKILL", "rank 0 did not end by itself and was killed")
