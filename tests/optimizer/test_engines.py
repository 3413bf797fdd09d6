"""All engines agree with an exhaustive search (`walk.py`) on small instances."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from pipesched.optimizer.solve.bounds import longest_paths
from pipesched.optimizer.solve.bounds.lattice import merged_links, tighten
from pipesched.optimizer.solve.engines import sat_engines
from pipesched.optimizer.solve.engines.decide import ENGINES, decide
from pipesched.optimizer.solve.problem import Problem, Question
from pipesched.optimizer.solve.reductions import merge
from tests.depth import deep, some
from tests.makers.instances import linear, problem_of_case
from tests.oracles.walk import Case, least, random_case

TOP = Path(__file__).resolve().parents[2]
CASES = [random_case(seed) for seed in range(deep(36, usual=24))]
"""Among them, of each kind some: two routes, zero costs, every release rule, no schedule at all."""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("alone", [True, False], ids=["learnt", "plain"])
def test_an_engine_agrees_with_trying_everything(
    engine: str, part: int, alone: bool, optima: dict[Case, int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """sat exactly from the least makespan on, whether or not each rank alone is tried first;
    unknown only as announced.
    """
    if not alone:
        monkeypatch.setattr("pipesched.optimizer.solve.engines.decide.tighten", lambda merged, paths, bound: merged)
    for case in some(CASES[part::3], 4):
        optimum = optima[case]
        for bound in [60] if optimum is None else [optimum - 1, optimum]:
            answer = decide(Question(problem_of_case(case), bound, engine=engine))
            right = "sat" if optimum is not None and bound >= optimum else "unsat"
            instant = case.release == "torch" and not all(case.input) and not all(case.weight)
            assert answer.verdict == right or (instant and answer.verdict == "unknown"), (case, bound, answer)


@pytest.fixture(scope="module")
def optima() -> dict[Case, int | None]:
    """Least makespan of every case."""
    return {case: least(case) for case in CASES}


def test_the_cases_are_of_every_kind(optima: dict[Case, int | None]) -> None:
    """Both verdicts are asked for, with one route and two, fused and split, and with operations of no length."""
    feasible = [case for case, optimum in optima.items() if optimum is not None]
    assert deep(20, usual=12) < len(feasible) < len(CASES)
    assert {(len(set(case.route_of)), case.fused) for case in feasible} == {
        (1, True),
        (1, False),
        (2, True),
        (2, False),
    }
    assert {case.release for case in feasible} == {"W", "I", "split:1/3", "split:1/2", "torch"}
    assert any(0 in case.weight for case in feasible) and any(0 in case.input for case in feasible)


def test_what_one_rank_cannot_do_all_cannot_do() -> None:
    """A question about some ranks is refuted only if the whole is; a sat answer to it is not a schedule."""
    verdicts = set()
    for seed in range(deep(10)):
        case = random_case(seed)
        problem = problem_of_case(case)
        for bound in range(4, 24, 3):
            whole = decide(Question(problem, bound))
            for ranks in [(r,) for r in range(case.ranks)] + [(0, case.ranks - 1)]:
                part = decide(Question(problem, bound, ranks=ranks))
                verdicts.add((whole.verdict, part.verdict))
                assert part.start is None
                assert (whole.verdict, part.verdict) != ("sat", "unsat"), (case, bound, ranks)
    assert ("unsat", "sat") in verdicts and ("unsat", "unsat") in verdicts


def test_all_ranks_by_name_are_the_whole() -> None:
    """A question that lists every rank has the verdict of the whole."""
    for seed in range(deep(10)):
        case = random_case(seed)
        for bound in range(4, 24, 4):
            question = Question(problem_of_case(case), bound)
            listed = replace(question, ranks=tuple(range(case.ranks)))
            assert decide(question).verdict == decide(listed).verdict, (case, bound)


def reached(problem: Problem) -> int:
    """Return the least bound that ranks alone do not refute."""
    for bound in count():
        low, high = longest_paths.within(problem, bound)
        if (high >= low).all():
            merged = merge(problem, low, high)
            if tighten(merged, merged_links(problem, merged), bound) is not None:
                return bound
    raise AssertionError


def test_ranks_alone_refute_only_what_cannot_be(optima: dict[Case, int | None]) -> None:
    """The lattice never refutes a possible bound, and on a single rank it refutes every impossible one."""
    for case, optimum in optima.items():
        problem = problem_of_case(case)
        if optimum is None or (case.ranks > 1 and reached(problem) <= optimum):
            continue
        assert case.ranks == 1 and reached(problem) == optimum, case
    assert {case.ranks for case, optimum in optima.items() if optimum is not None} == {1, 2, 3}


def test_the_last_rank_of_a_folded_pipeline_decides() -> None:
    """V placement on 4 ranks with 12 microbatches has the optima that solvers proved in minutes from all ranks
    together."""
    for cap, optimum in [(5, 80), (7, 76)]:
        problem = linear(4, 12, cap, folded=True)
        refuted = decide(Question(problem, optimum - 1, ranks=(3,)))
        assert (refuted.verdict, refuted.engine) == ("unsat", "ranks")
        assert decide(Question(problem, optimum)).verdict == "sat"


def tables(length: int, bound: int) -> Iterator[tuple[list[int], list[int]]]:
    """Return all starts of F and B of one rank, each of one tick, within a bound, in microbatch order."""

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
    """sat exactly if some table of starts repeats: as many more by t + T as n, for every t in the window."""
    length, bound = 4, 9
    one, none = (1,), (0,)
    case = Case(1, ((0,),), (0,) * length, one, none, one, none, (30,), "W", (30 * length,), True)
    every = list(tables(length, bound))

    def periodic(starts: list[int], window: tuple[int, int, int, int]) -> bool:
        first, last, n, period = window
        count = [sum(start <= t for start in starts) for t in range(last + period + 1)]
        return all(count[t + period] == count[t] + n for t in range(first, last + 1))

    verdicts = set()
    every_window = [
        (a, a + w, n, k) for a in range(0, 7, 2) for w in (0, 1, 3) for n in (0, 1, 2, 5) for k in (1, 2, 3, 4)
    ]
    for window in some(every_window, 1, usual=5):
        exists = any(periodic(f, window) and periodic(b, window) for f, b in every)
        answer = decide(Question(problem_of_case(case), bound, engine=engine, repeat=window))
        assert answer.verdict == ("sat" if exists else "unsat"), window
        verdicts.add(exists)
    assert verdicts == {True, False}


def test_a_forward_without_length_is_declined() -> None:
    """If F takes no time, the answer is unknown, with the reason."""
    case = replace(random_case(0), forward=(0,) * len(random_case(0).forward))
    assert decide(Question(problem_of_case(case), 20)).reason == "a forward takes no time"


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_leaves_ctrl_c_to_python(engine: str) -> None:
    """After a process, such as a notebook, has asked an engine, Ctrl-C is still a KeyboardInterrupt."""
    code = (
        "import signal\nfrom pipesched.optimizer.solve.engines.decide import decide\n"
        "from pipesched.optimizer.solve.problem import Question\n"
        f"from tests.makers.instances import linear\ndecide(Question(linear(2, 2, 2), 9, engine={engine!r}))\n"
        "try:\n    signal.raise_signal(signal.SIGINT)\nexcept KeyboardInterrupt:\n    print('interrupted')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=TOP, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "interrupted\n", done


def test_clauses_of_an_unknown_answer_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that gives up has taken the steps that were reported, and its own."""

    def given_up(clauses: object, effort: sat_engines.Effort) -> sat_engines.Outcome:
        raise sat_engines.UnknownError(steps=1000)

    reported: list[int] = []
    monkeypatch.setattr(sat_engines, "by_cadical", given_up)
    answer = decide(Question(linear(8, 16, 5), 69), reported.append)
    assert answer.verdict == "unknown" and answer.steps >= max(reported) + 1000 > 1000


def test_a_wrong_model_is_never_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any model of an engine is checked: it is a schedule, or the answer is unknown."""
    rng = np.random.default_rng(0)
    problem = linear(2, 3, 2)
    right = decide(Question(problem, 20))
    assert right.verdict == "sat"
    monkeypatch.setattr(
        sat_engines,
        "by_cadical",
        lambda clauses, effort: sat_engines.Outcome(rng.random(clauses.variables + 1) < 0.5),
    )
    for _ in range(50):
        answer = decide(Question(problem, 20))
        assert answer.verdict == "unknown" and "is not a schedule" in answer.reason


def test_heads_and_tails_leave_every_best_schedule(optima: dict[Case, int | None]) -> None:
    """No longest path exceeds the least makespan."""
    for case, optimum in optima.items():
        problem = problem_of_case(case)
        if optimum is not None:
            assert longest_paths.paths(problem).least(problem) <= optimum
