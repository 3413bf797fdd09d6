"""A search is timed in steps: its end and the order of its events do not depend on delays of processes, and the steps
that compute bounds count too.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from pipesched.model.columns import Ints
from pipesched.optimizer.solve.bounds import longest_paths
from pipesched.optimizer.solve.candidates import Pool
from pipesched.optimizer.solve.engines.worker_pool import Pool as Workers
from pipesched.optimizer.solve.meter import Meter
from pipesched.optimizer.solve.portfolio.banker import one_by_one
from pipesched.optimizer.solve.problem import Answer, Question
from pipesched.optimizer.solve.search.lanes import Answered, Found, Lanes
from pipesched.optimizer.solve.search.unrolled import unrolled
from tests.makers.instances import linear

QUESTION = Question(linear(2, 2, 2), 9)


class Slow:
    """Two workers whose reports and answers arrive late, by chance. work: the steps of the n-th question."""

    size = 2

    def __init__(self, work: list[int], chance: random.Random) -> None:
        self.work, self.chance = work, chance
        self.steps: dict[int, int] = {}
        self.asked = 0
        self.over: list[tuple[int, Answer]] = []

    def submit(self, question: Question) -> int:
        self.asked += 1
        self.steps[self.asked] = 0
        return self.asked

    def cancel(self, ticket: int) -> None:
        self.steps.pop(ticket, None)
        self.over = [one for one in self.over if one[0] != ticket]

    def listen(self, timeout: float | None) -> None:
        for ticket in list(self.steps):
            if self.chance.random() < 0.5:
                self.steps[ticket] = self.chance.randint(self.steps[ticket], self.work[ticket - 1])
            elif self.chance.random() < 0.3:
                del self.steps[ticket]
                self.over.append((ticket, Answer("unknown", steps=self.work[ticket - 1])))

    def arrived(self) -> list[tuple[int, Answer]]:
        found, self.over = self.over, []
        return found


def events(seed: int, delays: int) -> tuple[list[tuple[str, int, int]], int]:
    """Return the events of a search, each with the time and the work so far, and the work at its end."""
    drawn, meter = random.Random(seed), Meter(40_000)
    work = [drawn.randint(1, 5_000) for _ in range(1_000)]
    slices = [(drawn.randint(1, 700), drawn.random() < 0.2) for _ in range(drawn.choice([5, 1_000]))]
    pool = Slow(work, random.Random(delays))

    def heuristics() -> Iterator[tuple[int, Found | None]]:
        for number, (steps, better) in enumerate(slices):
            meter.spend(steps)
            yield steps, Found(f"{number}", []) if better else None

    lanes = Lanes(cast(Workers, pool), meter, heuristics(), drawn.choice([1, 4]))
    seen: list[tuple[str, int, int]] = []
    while True:
        while lanes.free:
            lanes.ask(QUESTION)
        event = lanes.next()
        if event is None:
            return seen, meter.spent
        name = f"answer {event.ticket}" if isinstance(event, Answered) else event.name
        seen.append((name, lanes.now, meter.spent))
        if isinstance(event, Found) and lanes._since and drawn.random() < 0.3:
            lanes.cancel(min(lanes._since))


@pytest.mark.parametrize("seed", range(20))
def test_delays_change_nothing(seed: int) -> None:
    """The same answers and orders arrive at the same steps, and the search ends at the limit, within a slice."""
    first, spent = events(seed, 0)
    assert all(events(seed, delays) == (first, spent) for delays in range(1, 6))
    assert len(first) > 3 and 40_000 <= spent < 46_000
    assert [now for _, now, _ in first] == sorted(now for _, now, _ in first)
    assert max(Counter(name for name, *_ in first).values()) == 1


@pytest.mark.parametrize("ticks", [1, 9973])
def test_bounds_of_small_problems_are_counted(ticks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Schedules of few microbatches are sought for a span in coarse and in fine ticks: the meter counts a step at least
    for every operation on a longest path, and in fine ticks, about which no engine is asked, there are none.
    """
    unit = linear(2, 8, 3, folded=True)
    problem = replace(unit, objective="span", duration=unit.duration * np.where(unit.op == 0, 3, 2) * ticks)
    pool, derived = Pool(problem, Meter(100_000)), list[int]()
    pool.offer("one by one", one_by_one(problem))
    before, longest = pool.meter.spent, longest_paths.longest

    def counted(length: Ints, links: list[longest_paths.Link], least: Ints) -> Ints:
        derived.append(len(least))
        return longest(length, links, least)

    monkeypatch.setattr(longest_paths, "longest", counted)
    next(unrolled(pool, problem.value(np.zeros(problem.operations, np.int64)), "cadical"), None)
    assert sum(derived) <= pool.meter.spent - before
    assert bool(derived) == (ticks == 1)
