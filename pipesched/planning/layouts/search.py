"""The fastest choices that fit, found without looking closely at most of the others.

    every choice ──arithmetic──> bounds on bytes and time ──in order of time──> order, bytes, timeline ──> the best

A choice whose least bytes are over the cap, or whose least time is no better than the times that are known, is never
written out as a schedule. So the first choices are those of trying all. Work is done by any executor of
`concurrent.futures`, in portions that do not depend on it: what is found, and how much is looked at, is the same.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from multiprocessing import get_context
from typing import ParamSpec, TypeAlias, TypeVar

from pipesched.diagnostics import Code, fail
from pipesched.planning.codes import PlanningCode
from pipesched.planning.layouts.prediction import Bound, Prediction, Refused, bound, predict
from pipesched.planning.layouts.space import Choice, Space
from pipesched.planning.layouts.stages import Problem

PORTION, LOOKED_AT = 512, 8  # choices that are bounded in one piece of work, and looked at together
FEW = 4 * PORTION  # up to which other processes are not worth their start


def alike(nanoseconds: int) -> int:
    """The first five digits: times of a step that have these count as the same, and less memory is first."""
    unit: int = 10 ** max(0, len(str(nanoseconds)) - 5)
    return nanoseconds // unit * unit


Given = ParamSpec("Given")
Made = TypeVar("Made")


class Here(Executor):
    """In this process."""

    def submit(self, fn: Callable[Given, Made], /, *args: Given.args, **kwargs: Given.kwargs) -> Future[Made]:
        """The call, done at once."""
        made: Future[Made] = Future()
        try:
            made.set_result(fn(*args, **kwargs))
        except Exception as error:
            made.set_exception(error)
        return made


Tell: TypeAlias = Callable[[str], None]


def silent(line: str) -> None:
    """Tells nobody."""


def _bounds(problem: Problem, choices: Sequence[Choice]) -> list[Refused | Bound]:
    return [bound(problem, choice) for choice in choices]


@dataclass
class Search:
    """The choices of a problem. reasons: how many are refused, by kind; example: of each kind the one least over the
    cap. alive: those that no bound excludes, by the least time that any order takes. known: what was found of those
    that were looked at closely. tell: is told the progress.
    """

    problem: Problem
    executor: Executor
    tell: Tell = silent
    choices: list[Choice] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    example: dict[str, Refused] = field(default_factory=dict)
    alive: list[tuple[int, int]] = field(default_factory=list)
    known: dict[int, Refused | Prediction] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.choices = list(self.problem.space)
        portions = [self.choices[at : at + PORTION] for at in range(0, len(self.choices), PORTION)]
        made = self.executor.map(partial(_bounds, self.problem), portions)
        for number, found in enumerate(found for portion in made for found in portion):
            if isinstance(found, Refused):
                self._refuse(found)
            else:
                self.alive.append((found.nanoseconds, number))
            if number % PORTION == 0:
                self.tell(f"{number:,} of {len(self.choices):,} choices bounded")
        self.alive.sort()

    def _refuse(self, found: Refused) -> None:
        self.reasons[found.kind] += 1
        if found.over < self.example.setdefault(found.kind, found).over:
            self.example[found.kind] = found

    def possible(self) -> Iterator[Choice]:
        """Yield the choices that no bound excludes."""
        return (self.choices[number] for _, number in self.alive)

    @property
    def counts(self) -> dict[str, int]:
        """Number of choices by outcome."""
        over = sum(number for kind, number in self.reasons.items() if self.example[kind].over)
        timed = sum(isinstance(made, Prediction) for made in self.known.values())
        return {
            "choices": len(self.choices),
            "none": self.reasons.total() - over,
            "over_the_cap": over,
            "slower_by_a_bound": len(self.alive) - len(self.known),
            "timed": timed,
        }

    def best(
        self, count: int, keeps: Callable[[Choice], bool] = lambda _: True, apart: Sequence[str] = ()
    ) -> list[Prediction]:
        """The fastest that fit, of those that a rule keeps. apart: of choices that have these alike the first."""
        found: dict[Hashable, tuple[int, int, int]] = {}

        def group(number: int) -> Hashable:
            return tuple(self.choices[number][name] for name in apart) if apart else number

        def open_() -> Iterator[tuple[int, int]]:
            for least, number in self.alive:
                times = sorted(found.values())
                if len(times) >= count and alike(least) > times[count - 1][0]:
                    return
                known = found.get(group(number))
                if (known is None or alike(least) <= known[0]) and keeps(self.choices[number]):
                    yield least, number

        waiting = open_()
        while portion := [number for _, number in islice(waiting, LOOKED_AT)]:
            self._look(portion)
            for number in portion:
                if isinstance(made := self.known[number], Prediction):
                    mine = alike(made.nanoseconds), made.peak, number
                    found[group(number)] = min(mine, found.get(group(number), mine))
        rows = sorted(found.values())[:count]
        return [made for *_, number in rows if isinstance(made := self.known[number], Prediction)]

    def _look(self, numbers: Iterable[int]) -> None:
        fresh = [number for number in numbers if number not in self.known]
        made = self.executor.map(partial(predict, self.problem), [self.choices[number] for number in fresh])
        for number, found in zip(fresh, made, strict=True):
            self.known[number] = found
            self.tell(f"{len(self.known):,} of at most {len(self.alive):,} choices timed")
            if isinstance(found, Refused):
                self._refuse(found)


@contextmanager
def executor(name: str, space: Space) -> Iterator[Executor]:
    """Who does the work: ``processes``, ``processes:N``, ``here``, or ``dask:ADDRESS`` of a cluster's scheduler.

    Raises:
        PipeschedError: PS225 no such executor; PS249 no cluster.
    """
    kind, _, where = name.partition(":")
    few = kind == "processes" and not where and len(list(islice(space, FEW + 1))) <= FEW
    if kind == "here" or few:
        yield Here()
    elif kind == "processes" and (not where or (where.isdecimal() and 0 < int(where[:4]) <= 1024)):
        begun = get_context("fork" if sys.platform == "linux" else "spawn")
        with ProcessPoolExecutor(int(where or os.cpu_count() or 1), begun) as made:
            yield made
    elif kind == "dask" and where:
        with _dask(where) as made:
            yield made
    else:
        raise fail(
            Code.USAGE, f"no executor is called {name[:60]!r}", help="processes, processes:N, here, dask:ADDRESS"
        )


@contextmanager
def _dask(address: str) -> Iterator[Executor]:
    """The workers of a cluster, which have this version of pipesched too."""
    try:
        from distributed import Client
    except ImportError:
        raise fail(PlanningCode.NO_CLUSTER, "Dask is not installed", help="pip install 'pipesched[planning]'") from None
    try:
        client = Client(address, timeout=5)
    except (OSError, ValueError) as error:  # of both, what goes out of time is an OSError
        raise fail(PlanningCode.NO_CLUSTER, f"no scheduler of Dask answers at {address[:60]}: {error}") from None
    try:
        yield client.get_executor()
    finally:
        client.close()
