"""Every request to a worker process is answered, and no process is left behind."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipesched.optimizer.solve.engines.decide import decide
from pipesched.optimizer.solve.engines.worker_pool import Pool
from pipesched.optimizer.solve.problem import Question
from tests.makers.instances import linear


def hard() -> Question:
    """Return a question that takes an engine a minute: at a bound, with 1,536 operations."""
    return Question(linear(8, 32, 20, folded=True), 199)


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(2) as made:
        yield made


def test_a_pool_says_what_is_said_here(pool: Pool) -> None:
    """Every ticket gets its own answer, as in this process; more questions than workers wait their turn."""
    questions = [Question(linear(2, m, 2), bound) for m in (2, 3, 4) for bound in (8, 11, 14, 20)]
    tickets = {pool.submit(question): question for question in questions}
    while (got := pool.wait(60)) is not None:
        ticket, answer = got
        question = tickets.pop(ticket)
        here = decide(question)
        assert (answer.verdict, answer.engine, answer.reason) == (here.verdict, here.engine, here.reason)
        assert (answer.start is None) == (here.start is None)
        if answer.start is not None:
            assert question.problem.value(answer.start) <= question.bound
    assert not tickets and pool.idle == 2


def test_a_cancelled_question_is_not_answered(pool: Pool) -> None:
    """Its worker is free at once, whether the question ran or waited."""
    running, other, queued = pool.submit(hard()), pool.submit(hard()), pool.submit(hard())
    assert pool.wait(0.3) is None and pool.idle == 0
    for ticket in (queued, running, other):
        pool.cancel(ticket)
    assert pool.idle == 2 and pool.wait(0) is None
    ticket = pool.submit(Question(linear(2, 2, 2), 20))
    got = pool.wait(60)
    assert got is not None and got[0] == ticket and got[1].verdict == "sat"


def test_a_worker_that_dies_is_an_unknown(pool: Pool) -> None:
    """The death is reported with its signal, and the pool continues."""
    ticket = pool.submit(hard())
    assert pool.wait(0.3) is None
    (busy,) = [worker for worker in pool._workers if worker.ticket == ticket]
    busy.process.kill()
    got = pool.wait(60)
    assert got is not None and got[0] == ticket
    assert got[1].verdict == "unknown" and "signal 9" in got[1].reason
    assert pool.idle == 2


def test_what_an_engine_refuses_is_an_unknown_in_a_pool(pool: Pool) -> None:
    """An error in a worker is an answer with a reason; the worker continues."""
    pool.submit(Question(linear(2, 2, 2), 20, engine="abacus"))
    got = pool.wait(60)
    assert got is not None and got[1].verdict == "unknown" and "abacus" in got[1].reason


PARENT = """
import sys, time
from pipesched.optimizer.solve.engines.worker_pool import Pool
from tests.optimizer.test_pool import hard
pool = Pool(2)
tickets = [pool.submit(hard()), pool.submit(hard())]
assert pool.wait(0.5) is None
print(*(worker.process.pid for worker in pool._workers), flush=True)
if sys.argv[1] == "raise":
    raise ValueError
if sys.argv[1] == "wait":
    pool.wait()
"""


@pytest.mark.parametrize(
    "end", ["return", *(pytest.param(x, marks=pytest.mark.nightly) for x in ("raise", "interrupt")), "kill"]
)
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells of a parent's end by a signal on Linux only")
def test_no_worker_outlives_its_parent(end: str) -> None:
    """However the parent ends, both workers, in the middle of a question, end too."""
    how = {"interrupt": "wait", "kill": "wait"}.get(end, end)
    command = [sys.executable, "-c", PARENT, how]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=root) as parent:
        assert parent.stdout is not None
        workers = [int(word) for word in parent.stdout.readline().split()]
        if how == "wait":
            parent.send_signal(2 if end == "interrupt" else 9)
        parent.wait(60)
    assert len(workers) == 2
    until = time.monotonic() + 30
    while (alive := [pid for pid in workers if running(pid)]) and time.monotonic() < until:
        time.sleep(0.02)
    assert not alive


def running(pid: int) -> bool:
    """Return True if a process is running, and not a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
