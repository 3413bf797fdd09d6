"""Results do not depend on the load of the machine: work is counted in steps, and events are ordered by steps.

The clock of steps is shown on engines that answer in any order of arrival; whole answers are compared to the byte, on
an idle machine and beside processes that fill it.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from pipesched.optimizer.solve.engines.worker_pool import Pool
from pipesched.optimizer.solve.meter import Meter
from pipesched.optimizer.solve.problem import Answer, Orders, Question
from pipesched.optimizer.solve.search.lanes import Answered, Found, Lanes, Slice
from tests.depth import deep
from tests.makers.instances import linear

BUSY = "while True: pass"


@dataclass
class Machine:
    """The engines that take as many steps as the bound of a question, and report in random order."""

    draw: random.Random
    size: int = 2
    steps: dict[int, int] = field(default_factory=dict)
    left: dict[int, int] = field(default_factory=dict)
    done: list[tuple[int, Answer]] = field(default_factory=list)
    tickets: int = 0

    def submit(self, question: Question) -> int:
        self.tickets += 1
        self.left[self.tickets] = question.bound
        return self.tickets

    def cancel(self, ticket: int) -> None:
        self.left.pop(ticket, None)
        self.steps.pop(ticket, None)

    def listen(self, timeout: float) -> bool:
        """Let one engine do part of its work."""
        ticket = self.draw.choice(sorted(self.left))
        self.steps[ticket] = min(self.left[ticket], self.steps.get(ticket, 0) + self.draw.randint(1, 9))
        if self.steps[ticket] == self.left[ticket]:
            self.done.append((ticket, Answer("unsat", steps=self.left.pop(ticket))))
            del self.steps[ticket]
        return True

    def arrived(self) -> list[tuple[int, Answer]]:
        found, self.done = self.done, []
        return found


def beside() -> Iterator[Slice]:
    """Yield the heuristics that find something now and then."""
    for i in range(40):
        yield 3, Found(f"order {i}", cast(Orders, ())) if i % 7 == 0 else None


def trace(seed: int) -> list[tuple[str, int]]:
    """Return the sequence of events: a question ends, another that depends on it is asked, some are cancelled."""
    machine, asked = Machine(random.Random(seed)), 0
    lanes = Lanes(cast(Pool, machine), Meter(), beside(), 2)
    problem, seen, open_ones = linear(2, 2, 2), list[tuple[str, int]](), set[int]()
    while asked < 30 or open_ones:
        while lanes.free and asked < 30:
            asked += 1
            open_ones.add(lanes.ask(Question(problem, 1 + (17 * asked + 5 * len(seen)) % 50)))
        event = lanes.next()
        if isinstance(event, Answered):
            seen.append((f"ticket {event.ticket}", lanes.now))
            open_ones.discard(event.ticket)
            if event.ticket % 5 == 0 and open_ones:
                lanes.cancel(min(open_ones))
                open_ones.discard(min(open_ones))
        elif event is not None:
            seen.append((event.name, lanes.now))
    return seen


def test_events_come_in_the_order_of_their_steps() -> None:
    """Whichever engine is faster, the same events happen at the same times, and time never runs back."""
    first = trace(0)
    assert len(first) > 20 and {what.split()[0] for what, _ in first} == {"ticket", "order"}
    assert [at for _, at in first] == sorted(at for _, at in first)
    assert all(trace(seed) == first for seed in range(1, 40))


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Run beside busy processes."""
    running = [subprocess.Popen([sys.executable, "-S", "-c", BUSY]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def answer(*arguments: str) -> bytes:
    """Return the output of the command."""
    command = [sys.executable, "-m", "pipesched", "optimize", *arguments, "--json"]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=300).stdout


COMMANDS = {
    "engines on both sides": ("--p", "4", "--m", "8", "--mem-cap", "3", "--no-portfolio", "--cost", "F=2,I=3,W=2,C=1"),
    "uneven stages": ("--p", "4", "--m", "8", "--mem-cap", "3", "--cost", "F=[3,5,2,4],I=[4,4,3,5],W=[2,3,3,1],C=1"),
}


@pytest.mark.nightly
@pytest.mark.timed
@pytest.mark.parametrize("command", [*COMMANDS.values()][-deep(1) :])
def test_a_busy_machine_says_the_same_bytes(command: tuple[str, ...]) -> None:
    """The value, the verdict, the schedule and its proof are the same beside a busy process on every core."""
    alone = answer(*command, "--time-limit", "300")
    assert json.loads(alone)["reason"] is None and json.loads(alone)["ok"]
    with busy(os.cpu_count() or 1):
        assert answer(*command, "--time-limit", "300") == alone


def test_the_seed_is_told_and_changes_no_value() -> None:
    """A seed always gives the same answer; another seed gives the same optimum."""
    command = ("--p", "3", "--m", "4", "--placement", "vee", "--mem-cap", "5/2", "--cost", "F=2,I=3,W=1")
    told = [json.loads(answer(*command, "--seed", seed)) for seed in ("0", "7")]
    assert [one["seed"] for one in told] == [0, 7] and all(one["ok"] for one in told)
    assert told[0]["makespan"] == told[1]["makespan"]


def work(*arguments: str) -> tuple[float, dict[str, Any]]:
    """Return CPU seconds of a command, and its output."""
    import resource

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = json.loads(answer(*arguments))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, told


@pytest.mark.timed
def test_the_time_limit_is_of_all_that_is_done() -> None:
    """At 98,304 operations and one second, reading the library, printing and verifying also count."""
    command = ("--p", "64", "--m", "512", "--mem-cap", "40", "--time-limit", "1", "--cost", "F=10,I=12,W=8,C=1")
    seconds, told = work(*command)
    assert seconds < 8 and told["makespan"] is not None
    assert told["ok"] or "time limit of 1 s" in told["reason"]


@pytest.mark.nightly
@pytest.mark.timed
def test_heuristics_go_on_to_the_end() -> None:
    """If no engine can be asked, only the time limit ends the search: four times the limit takes over twice as long."""
    size = ("--p", "8", "--m", "24", "--placement", "vee", "--mem-cap", "5", "--cost", UNEVEN)
    (short, few), (long, many) = (work(*size, "--time-limit", limit) for limit in ("2", "8"))
    assert "time limit of 2 s" in few["reason"] and "time limit of 8 s" in many["reason"]
    assert long > 2 * short


UNEVEN = "F=[{}],I=[{}],W=[{}],C=3".format(
    *(",".join(str(2000 + (7 * s + 5 * k * s * s) % 1900) for s in range(16)) for k in (1, 2, 3))
)
