"""Finds the least makespan of a tiny instance by trying every possible action of a rank at every tick.

Tick by tick: every task whose inputs are there may begin on a rank that is free, or wait. It knows nothing of
microbatch order, of windows or of counters; memory is the sum of what the rank's tasks have taken and freed so far.
Shares no code with the tool.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Case:
    """An instance in plain numbers, by stage where lists; memory in tenths and thirds of an activation: 30 = 1."""

    ranks: int
    routes: tuple[tuple[int, ...], ...]
    route_of: tuple[int, ...]
    forward: tuple[int, ...]
    input: tuple[int, ...]
    weight: tuple[int, ...]
    message: tuple[int, ...]
    size: tuple[int, ...]
    release: str
    caps: tuple[int, ...]
    fused: bool

    @property
    def shares(self) -> tuple[Fraction, Fraction]:
        """The shares of F's memory that I and W free."""
        if self.release.startswith("split:"):
            at_weight = Fraction(self.release[6:])
        else:
            at_weight = {"W": Fraction(1), "I": Fraction(0), "torch": Fraction(8, 5)}[self.release]
        return 1 - at_weight, at_weight


@dataclass(frozen=True)
class Task:
    """An operation of one microbatch: its rank, duration, inputs (task, delay after its end), and memory."""

    rank: int
    length: int
    after: tuple[tuple[int, int], ...]
    at_start: int
    at_end: int


def tasks(case: Case) -> list[Task]:
    """Return every operation of a case, from the definitions of F, I, W and B."""
    at_input, at_weight = case.shares
    number: dict[tuple[str, int, int], int] = {}
    made: list[Task] = []

    def add(kind: str, i: int, s: int, length: int, at_start: int, at_end: Fraction, *before: str | None) -> None:
        ranks = case.routes[case.route_of[i]]
        after = []
        for key in before:
            if key is not None:
                which, there = key[0], s + int(key[1:])
                lag = case.message[there] if ranks[there] != ranks[s] else 0
                after.append((number[which, i, there], lag))
        number[kind, i, s] = len(made)
        assert at_end.denominator == 1
        made.append(Task(ranks[s], length, tuple(after), at_start, int(at_end)))

    for i, route in enumerate(case.route_of):
        stages = len(case.routes[route])
        for s in range(stages):
            add("F", i, s, case.forward[s], case.size[s], Fraction(0), "F-1" if s else None)
        for s in reversed(range(stages)):
            above = None if s == stages - 1 else ("B+1" if case.fused else "I+1")
            size = case.size[s]
            if case.fused:
                add("B", i, s, case.input[s] + case.weight[s], 0, Fraction(-size), "F+0", above)
            else:
                add("I", i, s, case.input[s], 0, -size * at_input, "F+0", above)
                add("W", i, s, case.weight[s], 0, -size * at_weight, "I+0")
    return made


WAITING = -1
State = tuple[int, ...]
"""The end of every task, WAITING before it begins; 0 where it ended long ago."""


def least(case: Case) -> int | None:
    """Return the least makespan over all schedules with whole starts, None if there is none."""
    jobs = tasks(case)
    memory = max((lag for job in jobs for _, lag in job.after), default=0)
    states, now = {(WAITING,) * len(jobs)}, 0
    best: int | None = None
    while states and (best is None or now < best):
        after: set[State] = set()
        for state in reached(case, jobs, states, now):
            if WAITING not in state:
                best = min(max(state), best if best is not None else max(state))
            elif any(end >= now - memory for end in state if end != WAITING):  # else nothing will ever change
                after.add(canonical(case, tuple(e if e == WAITING or e >= now - memory else 0 for e in state)))
        now += 1
        states = {s for s in after if all(held(case, jobs, s, r, now) <= case.caps[r] for r in range(case.ranks))}
    return best


def reached(case: Case, jobs: list[Task], states: set[State], now: int) -> set[State]:
    """Return all states that follow by beginning tasks at this tick, in any order, or none."""
    seen, stack = set(states), list(states)
    while stack:
        state = stack.pop()
        busy = {job.rank for job, end in zip(jobs, state, strict=True) if end > now}
        for j, job in enumerate(jobs):
            if state[j] != WAITING or job.rank in busy:
                continue
            if all(state[before] != WAITING and state[before] + lag <= now for before, lag in job.after):
                begun = (*state[:j], now + job.length, *state[j + 1 :])
                if begun not in seen and held(case, jobs, begun, job.rank, now) <= case.caps[job.rank]:
                    seen.add(begun)
                    stack.append(begun)
    return seen


def held(case: Case, jobs: list[Task], state: State, rank: int, now: int) -> int:
    """Return the memory of a rank."""
    there = [(job, end) for job, end in zip(jobs, state, strict=True) if job.rank == rank and end != WAITING]
    return sum(job.at_start + (job.at_end if end <= now else 0) for job, end in there)


def canonical(case: Case, state: State) -> State:
    """Return the same state with the microbatches of a route in a fixed order, as they are alike."""
    each = len(state) // len(case.route_of)
    blocks = sorted(zip(case.route_of, (state[i : i + each] for i in range(0, len(state), each)), strict=True))
    places = sorted(range(len(case.route_of)), key=lambda i: case.route_of[i])
    made: list[State] = [()] * len(blocks)
    for place, (_, block) in zip(places, blocks, strict=True):
        made[place] = block
    return tuple(end for block in made for end in block)


def random_case(seed: int) -> Case:
    """Return Up to 3 ranks, and about a dozen tasks: any placement, one or two routes, any costs, sizes, rule and
    caps."""
    rng = random.Random(seed)
    ranks = rng.choice((1, 2, 2, 2, 3))
    fused = rng.random() < 0.5
    line = list(range(ranks))
    shapes = [line, line, line + line, line + line[::-1], [rng.randrange(ranks) for _ in range(rng.randint(1, 3))]]
    down = rng.choice(shapes)
    routes = [down] if rng.random() < 0.7 else [down, down[::-1]]
    stages = len(down)
    fit = max(1, (15 if fused else 14) // (stages * (2 if fused else 3)))
    route_of = sorted(rng.randrange(len(routes)) for _ in range(rng.randint(1, min(4, fit))))

    def numbers(low: int, high: int) -> tuple[int, ...]:
        if rng.random() < 0.5:
            return (rng.randint(low, high),) * stages
        return tuple(rng.randint(low, high) for _ in range(stages))

    release = rng.choice(("W", "W", "I", "split:1/3", "split:1/2", "torch"))
    size = (30,) * stages if rng.random() < 0.7 else tuple(rng.choice((30, 30, 60, 90)) for _ in range(stages))
    needs = [max(sum(size[s] for s in range(stages) if way[s] == r) for way in routes) for r in line]
    caps = tuple(need * rng.choice((9, 10, 10, 12, 13, 15, 20, 30)) // 10 for need in needs)
    return Case(
        ranks,
        tuple(map(tuple, routes)),
        tuple(route_of),
        numbers(1, 3),
        numbers(0, 3),
        numbers(0, 3),
        numbers(0, 2),
        size,
        release,
        caps,
        fused,
    )
