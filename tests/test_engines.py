"""What an engine says of small instances is what trying everything says.

The oracle here walks through time tick by tick and tries everything that each rank could do. It knows nothing of
microbatch order, of windows or of counters; memory is what the rank has taken and freed so far, one operation after
the other.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest

from pipesched.diagnostics import Code, PipeschedError
from pipesched.model.placement import Placement
from pipesched.model.release import Release
from pipesched.optimize import tighten, windows
from pipesched.optimize.engines import ENGINES, decide
from pipesched.optimize.engines.pool import Pool
from pipesched.optimize.problem import Problem, Sizes, build
from pipesched.optimize.question import Question

FAR = 400  # no small instance takes longer


@dataclass(frozen=True)
class Case:
    """One instance in plain numbers, by stage where lists; memory in tenths and thirds of an activation: 30 = 1."""

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

    def problem(self) -> Problem:
        rule = Release.parse(self.release)
        placement = Placement(np.array(self.routes), np.array(self.route_of), self.ranks)
        size = np.array(self.size)
        at_input, at_weight = (
            np.array([int(x * share) for x in self.size]) for share in (rule.at_input, rule.at_weight)
        )
        f, i, w, c, caps = (np.array(x) for x in (self.forward, self.input, self.weight, self.message, self.caps))
        sizes = Sizes(Fraction(1), f, i, w, i + w, c, Fraction(1, 30), size, at_input, at_weight, caps)
        return build(placement, sizes, fused=self.fused)


@dataclass(frozen=True)
class Task:
    """One operation of one microbatch: where, how long, what it waits for (task, delay after its end), its memory."""

    rank: int
    length: int
    after: tuple[tuple[int, int], ...]
    at_start: int
    at_end: int


def tasks(case: Case) -> list[Task]:
    """Every operation of a case, from the definitions of F, I, W and B."""
    rule = Release.parse(case.release)
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
                add("I", i, s, case.input[s], 0, -size * rule.at_input, "F+0", above)
                add("W", i, s, case.weight[s], 0, -size * rule.at_weight, "I+0")
    return made


WAITING = -1
State = tuple[int, ...]
"""The end of every task, WAITING before it begins; 0 where it ended long ago."""


def least(case: Case) -> int | None:
    """The least makespan over all schedules with whole starts, None if there is none; everything is tried."""
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
    """All that can be made of the states by beginning tasks at this very time, in any order; nothing is one of it."""
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
    """What a rank holds."""
    there = [(job, end) for job, end in zip(jobs, state, strict=True) if job.rank == rank and end != WAITING]
    return sum(job.at_start + (job.at_end if end <= now else 0) for job, end in there)


def canonical(case: Case, state: State) -> State:
    """The same state with the microbatches of a route in some fixed order: they are alike."""
    each = len(state) // len(case.route_of)
    blocks = sorted(zip(case.route_of, (state[i : i + each] for i in range(0, len(state), each)), strict=True))
    places = sorted(range(len(case.route_of)), key=lambda i: case.route_of[i])
    made: list[State] = [()] * len(blocks)
    for place, (_, block) in zip(places, blocks, strict=True):
        made[place] = block
    return tuple(end for block in made for end in block)


def random_case(seed: int) -> Case:
    """Up to 3 ranks, and about a dozen tasks: any placement, one route or two, any costs, sizes, rule and caps."""
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


CASES = [random_case(seed) for seed in range(90)]
"""Among them, of each kind some: two routes, zero costs, every release rule, no schedule at all."""


SOLVERS = [engine for engine in ENGINES if engine != "lattice"]


@pytest.mark.parametrize("engine", SOLVERS)
@pytest.mark.parametrize("part", range(3))
def test_an_engine_agrees_with_trying_everything(engine: str, part: int, optima: dict[Case, int | None]) -> None:
    """sat exactly from the least makespan on; unknown only where it is told in advance."""
    if engine == "cpsat":
        pytest.importorskip("ortools")
    for case in CASES[part::3]:
        optimum = optima[case]
        for bound in [60] if optimum is None else [optimum - 2, optimum - 1, optimum, optimum + 1]:
            answer = decide(Question(case.problem(), bound, engine=engine))
            right = "sat" if optimum is not None and bound >= optimum else "unsat"
            instant = case.release == "torch" and not all(case.input) and not all(case.weight)
            assert answer.verdict == right or (instant and answer.verdict == "unknown"), (case, bound, answer)


@pytest.fixture(scope="module")
def optima() -> dict[Case, int | None]:
    """The least makespan of every case."""
    return {case: least(case) for case in CASES}


def test_the_cases_are_of_every_kind(optima: dict[Case, int | None]) -> None:
    """Both verdicts are asked for, with one route and two, fused and split, and with operations of no length."""
    feasible = [case for case, optimum in optima.items() if optimum is not None]
    assert 20 < len(feasible) < len(CASES)
    assert {(len(set(case.route_of)), case.fused) for case in feasible} == {
        (1, True),
        (1, False),
        (2, True),
        (2, False),
    }
    assert {case.release for case in feasible} == {"W", "I", "split:1/3", "split:1/2", "torch"}
    assert any(0 in case.weight for case in feasible) and any(0 in case.input for case in feasible)


def linear(ranks: int, microbatches: int, cap: int, *, folded: bool = False) -> Problem:
    """Unit costs, split, cap in activations; stages 0 .. p-1, and back where folded."""
    stages = (*range(ranks), *(reversed(range(ranks)) if folded else ()))
    one = (1,) * len(stages)
    caps, sizes = (cap * 30,) * ranks, (30,) * len(stages)
    none = (0,) * len(stages)
    return Case(ranks, (stages,), (0,) * microbatches, one, one, one, none, sizes, "W", caps, False).problem()


def test_what_one_rank_cannot_do_all_cannot_do() -> None:
    """A question about some ranks is refuted only if the whole is; a sat answer to it is no schedule."""
    verdicts = set()
    for seed in range(40):
        case = random_case(seed)
        problem = case.problem()
        for bound in range(4, 24, 3):
            whole = decide(Question(problem, bound))
            for ranks in [(r,) for r in range(case.ranks)] + [(0, case.ranks - 1)]:
                part = decide(Question(problem, bound, ranks=ranks))
                verdicts.add((whole.verdict, part.verdict))
                assert part.start is None
                assert (whole.verdict, part.verdict) != ("sat", "unsat"), (case, bound, ranks)
    assert ("unsat", "sat") in verdicts and ("unsat", "unsat") in verdicts


def test_all_ranks_by_name_are_the_whole() -> None:
    """A question about every rank, listed, has the verdict of the whole."""
    for seed in range(40):
        case = random_case(seed)
        for bound in range(4, 24, 4):
            question = Question(case.problem(), bound)
            listed = replace(question, ranks=tuple(range(case.ranks)))
            assert decide(question).verdict == decide(listed).verdict, (case, bound)


def test_ranks_alone_refute_only_what_cannot_be(optima: dict[Case, int | None]) -> None:
    """The lattice never refutes what is in reach, and on one rank, where nothing is left out, all that is not."""
    for case, optimum in optima.items():
        problem = case.problem()
        if optimum is None or (case.ranks > 1 and tighten.least(problem, 0) <= optimum):
            continue
        assert case.ranks == 1 and tighten.least(problem, 0) == optimum, case
    assert {case.ranks for case, optimum in optima.items() if optimum is not None} == {1, 2, 3}


def test_the_lattice_is_an_engine_that_refutes(optima: dict[Case, int | None]) -> None:
    """It says unsat where ranks alone show it, of all ranks or one, and otherwise that it does not know."""
    said = set()
    for case, optimum in optima.items():
        for bound in range(2, 20, 3):
            for ranks in (None, (0,), (case.ranks - 1,)):
                answer = decide(Question(case.problem(), bound, engine="lattice", ranks=ranks))
                said.add(answer.verdict)
                assert answer.verdict in ("unsat", "unknown")
                assert answer.verdict == "unknown" or optimum is None or bound < optimum, (case, bound, ranks)
    assert said == {"unsat", "unknown"}


def test_the_last_rank_of_a_folded_pipeline_decides() -> None:
    """V placement, 4 ranks, 12 microbatches: the optima that solvers proved from all ranks together, in minutes."""
    for cap, optimum in [(5, 80), (6, 77), (7, 76), (8, 75)]:
        problem = linear(4, 12, cap, folded=True)
        assert tighten.least(problem, 70, (3,)) == optimum
        assert decide(Question(problem, optimum)).verdict == "sat"


def tables(length: int, bound: int) -> Iterator[tuple[list[int], list[int]]]:
    """All starts of F and B of one rank, each of one tick, within a bound, in microbatch order."""

    def go(now: int, forwards: list[int], backwards: list[int]) -> Iterator[tuple[list[int], list[int]]]:
        if len(backwards) == length:
            yield forwards, backwards
        elif now < bound:
            yield from go(now + 1, forwards, backwards)
            if len(forwards) < length:
                yield from go(now + 1, [*forwards, now], backwards)
            if len(backwards) < len(forwards):
                yield from go(now + 1, forwards, [*backwards, now])

    return go(0, [], [])


@pytest.mark.parametrize("engine", ["cadical", "z3"])
def test_a_periodic_part_is_what_it_says(engine: str) -> None:
    """sat exactly if some table of starts repeats itself: as many more by t + T as n, for every t in the window."""
    length, bound = 4, 9
    one, none = (1,), (0,)
    case = Case(1, ((0,),), (0,) * length, one, none, one, none, (30,), "W", (30 * length,), True)
    every = list(tables(length, bound))

    def periodic(starts: list[int], window: tuple[int, int, int, int]) -> bool:
        first, last, n, period = window
        count = [sum(start <= t for start in starts) for t in range(last + period + 1)]
        return all(count[t + period] == count[t] + n for t in range(first, last + 1))

    verdicts = set()
    for window in [(a, a + w, n, k) for a in range(7) for w in (0, 1, 3) for n in (0, 1, 2, 5) for k in (1, 2, 3, 4)]:
        exists = any(periodic(f, window) and periodic(b, window) for f, b in every)
        answer = decide(Question(case.problem(), bound, engine=engine, window=window))
        assert answer.verdict == ("sat" if exists else "unsat"), window
        verdicts.add(exists)
    assert verdicts == {True, False}


def test_a_forward_without_length_is_declined() -> None:
    """Where F takes no time, the answer is unknown, with the reason."""
    case = replace(random_case(0), forward=(0,) * len(random_case(0).forward))
    assert decide(Question(case.problem(), 20)).reason == "a forward takes no time"


def test_cpsat_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without OR-Tools the engine is refused with PS820 and the command that installs it."""
    monkeypatch.setitem(sys.modules, "ortools", None)
    with pytest.raises(PipeschedError) as caught:
        decide(Question(linear(2, 2, 2), 9, engine="cpsat"))
    (told,) = caught.value.diagnostics
    assert told.code is Code.NEEDS and "pip install 'pipesched[cpsat]'" in str(told.help)


def test_a_wrong_model_is_never_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever an engine makes up is looked at: any model of its own is a schedule, or unknown."""
    from pipesched.optimize.engines import sat

    rng = np.random.default_rng(0)
    problem = linear(2, 3, 2)
    right = decide(Question(problem, 20))
    assert right.verdict == "sat"
    monkeypatch.setattr(
        sat, "solve", lambda clauses, engine, *, proof=False: sat.Outcome(rng.random(clauses.variables + 1) < 0.5)
    )
    for _ in range(50):
        answer = decide(Question(problem, 20))
        assert answer.verdict == "unknown" and "is no schedule" in answer.reason


def hard() -> Question:
    """A question that takes an engine a minute: out of reach, and with a proof in clauses, which is long."""
    return Question(linear(16, 64, 16), 206, proof=os.path.join(tempfile.gettempdir(), "never"))


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(2) as made:
        yield made


def test_a_pool_says_what_is_said_here(pool: Pool) -> None:
    """Every ticket gets its own answer, the same as in this process; more questions than workers wait their turn."""
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
    """The death is told with its signal, and the pool goes on."""
    ticket = pool.submit(hard())
    assert pool.wait(0.3) is None
    (busy,) = [worker for worker in pool._workers if worker.ticket == ticket]
    busy.process.kill()
    got = pool.wait(60)
    assert got is not None and got[0] == ticket
    assert got[1].verdict == "unknown" and "signal 9" in got[1].reason
    assert pool.idle == 2


def test_what_an_engine_refuses_is_an_unknown_in_a_pool(pool: Pool) -> None:
    """An error in a worker is an answer with a reason; the worker lives on."""
    pool.submit(Question(linear(2, 2, 2), 20, engine="abacus"))
    got = pool.wait(60)
    assert got is not None and got[1].verdict == "unknown" and "abacus" in got[1].reason


PARENT = """
import sys, time
from pipesched.optimize.engines.pool import Pool
from tests.test_engines import hard
pool = Pool(2)
tickets = [pool.submit(hard()), pool.submit(hard())]
assert pool.wait(0.5) is None
print(*(worker.process.pid for worker in pool._workers), flush=True)
if sys.argv[1] == "raise":
    raise ValueError
if sys.argv[1] == "wait":
    pool.wait()
"""


@pytest.mark.parametrize("end", ["return", "raise", "interrupt", "kill"])
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells of a parent's end by a signal on Linux only")
def test_no_worker_outlives_its_parent(end: str) -> None:
    """However the parent ends, both workers, in the middle of a question, end with it."""
    how = {"interrupt": "wait", "kill": "wait"}.get(end, end)
    command = [sys.executable, "-c", PARENT, how]
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
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
    """Whether a process is there and is no mere entry of a table."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_heads_and_tails_leave_every_best_schedule(optima: dict[Case, int | None]) -> None:
    """No longest path is above the least makespan."""
    for case, optimum in optima.items():
        problem = case.problem()
        if optimum is not None:
            assert windows.paths(problem).least(problem) <= optimum
