"""After a fault on one rank, all other ranks end within the timeout plus five seconds and report this fault; harmless
waits end no rank.

Real gloo processes (`runtime/troubled.py`), some at a time: they mostly wait.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from pipesched.runtime.execute.errors import Fault
from tests.runtime.troubled import THIRD, Ended, Trouble, ended

SOON, NEVER = 2.0, 30.0  # seconds of a timeout: that passes, or that a busy machine does not reach
EXTRA = 5.0
STOPPED, LEFT, OWN = "no sign of life for 2 s", "its process ended", "broken on purpose"

SILENT = ("stopped", "vanishes", "exits", "interrupted", "never")  # of these the rank itself tells no fault

# Event -> code, the rank named, and its message.
FAULTS: dict[Trouble, tuple[str, int, str]] = {
    Trouble("stopped", (0,), 3, timeout=SOON): ("PS823", 0, f"rank 0 is gone: {STOPPED}"),
    Trouble("stopped between", (0, 2), 3, timeout=SOON): ("PS823", 0, f"ranks 0 and 2 are gone: {STOPPED}"),
    Trouble("optimizer sleeps", (1,), timeout=SOON): ("PS822", 1, "between two steps, at troubled.py:"),
    Trouble("loader sleeps", (0,), timeout=SOON): ("PS822", 0, "between two steps, at troubled.py:"),
    Trouble("loss sleeps", (1,), timeout=SOON): ("PS822", 1, "(1F0): runs, at troubled.py:"),
    Trouble("STEP sleeps", (0,), timeout=SOON): ("PS822", 0, "(STEP): runs, at troubled.py:"),
    Trouble("STEP reduces", (0,), more=1, timeout=SOON): ("PS837", 0, "(STEP): runs, in all_reduce, at troubled.py:"),
    Trouble("reduces between", (1,), more=1, timeout=SOON): ("PS837", 1, "between two steps, in all_reduce, at"),
    Trouble("replica sleeps", (0,), more=2, timeout=SOON): ("PS837", 0, "runs, in the all-reduce of Distributed"),
    Trouble("leaves", (0,), 3): ("PS836", 0, "rank 0 left after 2 steps, and rank "),
    Trouble("leaves", (1,)): ("PS836", 1, "rank 1 left after 2 steps, and rank "),
    Trouble("never begins", (1,)): ("PS823", 0, "rank 0 cannot begin: RuntimeError: "),
    Trouble("raises", (1,)): ("PS825", 1, f"ValueError: ?[31m{OWN}\n --> rank 1, step 3\n"),
    Trouble("evaluation raises", (1,)): (
        "PS825",
        1,
        f"ValueError: ?[31m{OWN}\n --> rank 1, step 6, instruction 2 (1F0)\n",
    ),
    Trouble("interrupted", (0,)): ("PS825", 0, "KeyboardInterrupt\n"),
    Trouble("exits", (1,)): ("PS825", 1, "SystemExit: 0\n"),
    Trouble("vanishes", (0,), 3): ("PS823", 0, f"rank 0 is gone: {LEFT}"),
}

# No fault: a slow rank, slow loaders, two guards, evaluations; processes that stop for a while, even all for long.
HEALTHY = [
    Trouble("slow", (1,), timeout=4.0),
    Trouble("all load slowly", (0, 1), timeout=SOON),
    Trouble("twice", ()),
    Trouble("evaluates", ()),
    Trouble("stopped", (0,), 3, timeout=8.0, resume=2.0),
    Trouble("stopped between", (0, 1), timeout=SOON, resume=3.0),
]
WAITS = Trouble("reduces between", (0, 1), more=1, timeout=1.0, limit=9.0)


@pytest.fixture(scope="module")
def outcomes() -> dict[Trouble, list[Ended]]:
    """Run all of them, a few at a time."""
    with ThreadPoolExecutor(6) as pool:
        every = [*FAULTS, *HEALTHY, WAITS]
        return dict(zip(every, pool.map(ended, every), strict=True))


def name(given: object) -> str:
    return f"{given.kind}-{given.ranks}" if isinstance(given, Trouble) else ""


@pytest.mark.parametrize("given", FAULTS, ids=name)
def test_it_has_its_name(given: Trouble, outcomes: dict[Trouble, list[Ended]]) -> None:
    """On every rank of the pipeline that still works: the same code, place and text, and an exit status."""
    code, rank, said = FAULTS[given]
    silent = given.ranks if given.kind.split()[0] in SILENT else ()
    speaking = [end for r, end in enumerate(outcomes[given][: given.pipeline]) if r not in silent]

    faults = [Fault.of(end.fault) for end in speaking if end.fault is not None]
    assert len(faults) == len(speaking) > 0, outcomes[given]
    assert {fault.code for fault in faults} == {code}
    assert len({(fault.message, fault.place) for fault in faults}) == 1, "all ranks end with the same fault"
    assert {fault.place.rank for fault in faults if fault.place} == {rank}
    assert all(said in str(fault) for fault in faults), str(faults[0])
    assert {end.status for end in speaking} == {1}


@pytest.mark.parametrize("given", FAULTS, ids=name)
def test_it_ends_in_time(given: Trouble, outcomes: dict[Trouble, list[Ended]]) -> None:
    """The run ends within the hard limit, counted from the moment of the trouble. Faults that need no timeout are
    reported at once."""
    stopped = given.ranks if given.kind.startswith("stopped") else ()
    times = [end.seconds for rank, end in enumerate(outcomes[given][: given.pipeline]) if rank not in stopped]

    assert max(times) <= (given.timeout if given.timeout == SOON else 0) + EXTRA


@pytest.mark.parametrize("given", HEALTHY, ids=name)
def test_it_is_no_fault(given: Trouble, outcomes: dict[Trouble, list[Ended]]) -> None:
    assert [(end.status, end.fault, end.said) for end in outcomes[given]] == [(0, None, "")] * given.pipeline


def test_a_wait_between_two_steps_is_told_and_ends_nobody(outcomes: dict[Trouble, list[Ended]]) -> None:
    """All ranks of the pipeline wait for another replica, which may evaluate, or be gone: one warning shows where."""
    first, second, _ = outcomes[WAITS]

    assert (first.status, second.status, second.said) == (None, None, "")
    (line,) = [x for x in first.said.splitlines() if "in all_reduce" in x]  # a busy machine may be slow elsewhere
    assert line.startswith(
        f"warning: for 1 s no rank has made progress: rank 0, step {THIRD + 1}: between two steps, in all_reduce"
    )
