"""Searches for the fastest choices that fit, without timing most of the others.

    every choice ──arithmetic──> bounds on bytes and time ──in order of time──> order, bytes, timeline ──> the best

A choice is never expanded to a schedule if its lower bound on bytes exceeds the cap, or its lower bound on time exceeds
the times of the choices found so far. The first choices are the same as if all choices were tried. Any
`concurrent.futures` executor can do the work. The portions do not depend on the executor, so neither do the result and
the number of timed choices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from typing import TypeAlias

from pipesched.model.units import SECONDS
from pipesched.planning.byte_counts import gigabytes
from pipesched.planning.launch import launcher
from pipesched.planning.layouts.prediction import Bound, Prediction, Refused, bound, predict
from pipesched.planning.layouts.space import Choice, Size, Space
from pipesched.planning.layouts.stages import Problem

PORTION, LOOKED_AT = 512, 8  # choices per portion of work, when bounded and when timed
FEW = 4 * PORTION  # most choices for which other processes do not pay
GLANCE: dict[str, tuple[Size, ...]] = {
    "c": (1,),
    "b": (1,),
    "schedule": ("1f1b",),
    "split": ("even",),
    "zero": (0, 1, 3),
}
"""The choices to try for a first row, unless others are requested."""


def alike(nanoseconds: int) -> int:
    """Return the time rounded to five digits: of choices with equal rounded times, the one with less memory wins."""
    unit: int = 10 ** max(0, len(str(nanoseconds)) - 5)
    return nanoseconds // unit * unit


Tell: TypeAlias = Callable[[str], None]


def silent(line: str) -> None:
    """Report no progress."""


def _bounds(problem: Problem, choices: Sequence[Choice]) -> list[Refused | Bound]:
    return [bound(problem, choice) for choice in choices]


def _tried(problem: Problem, choice: Choice) -> Refused | Prediction:
    """Predict a choice; refuse it if `check` finds an error in its trainer's configuration."""
    made, space = predict(problem, choice), problem.space
    if isinstance(made, Refused) or not space.trainer:
        return made
    trainer = launcher(space.trainer)
    told = trainer.judged(trainer.launch(space, choice))
    return Refused(choice, f"{trainer.named}: {told}", told) if told else made


@dataclass
class Search:
    """A search over the choices of a problem. reasons: the number of refused choices, by kind; example: for each kind,
    the choice that exceeds the cap by the fewest bytes. alive: choices that no bound excludes, sorted by their lower
    bound on time. known: results of the timed choices. tell: a function that is called with progress messages.
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
        if self.tell is not silent:
            self._first()
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

    def _first(self) -> None:
        """Report a row early: of a few simple choices that fit, the one with the smallest bound on time."""
        space = self.problem.space
        few = list(islice(replace(space, only={**GLANCE, **space.only}), FEW))
        bounded = [
            (made.nanoseconds, n) for n, x in enumerate(few) if isinstance(made := bound(self.problem, x), Bound)
        ]
        for _, number in sorted(bounded)[:LOOKED_AT]:
            row = _tried(self.problem, few[number])
            if isinstance(row, Prediction):
                needs = f"needs {gigabytes(row.peak)} per GPU"
                says = f"takes {SECONDS.text(row.seconds)}" if row.trust.timed else needs
                self.tell(f"{few[number]} {says}: an early row, the search continues")
                return

    def _refuse(self, found: Refused) -> None:
        self.reasons[found.kind] += 1
        if found.over < self.example.setdefault(found.kind, found).over:
            self.example[found.kind] = found

    def possible(self) -> Iterator[Choice]:
        """Yield the choices that no bound excludes."""
        return (self.choices[number] for _, number in self.alive)

    @cached_property
    def widest(self) -> int:
        """The largest degree of tensor parallelism within a node, among the possible choices."""
        size = self.problem.device.node_size
        return max((x.training.tensor for x in self.possible() if x.training.tensor <= size), default=1)

    @property
    def counts(self) -> dict[str, int]:
        """The number of choices by outcome."""
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
        """Return the fastest choices that fit and pass `keeps`; of choices that agree in the sizes named in `apart`,
        only the first.
        """
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
        made = self.executor.map(partial(_tried, self.problem), [self.choices[number] for number in fresh])
        for number, found in zip(fresh, made, strict=True):
            self.known[number] = found
            self.tell(f"{len(self.known):,} of at most {len(self.alive):,} choices timed")
            if isinstance(found, Refused):
                self._refuse(found)


def pays(name: str, space: Space) -> str:
    """Return the name of the executor to use: ``here`` for a few choices, for which other processes do not pay off."""
    few = name == "processes" and len(list(islice(space, FEW + 1))) <= FEW
    return "here" if few else name
