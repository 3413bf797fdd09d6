"""Why ranks idle: the split, the growth with every microbatch, the critical path, each gap, and what order it is.

Growth is the difference of two runs of the same file, at m and at m + d microbatches, over d: what stays when the
constant costs of filling and draining are forgotten. d is the number of ranks where the file takes that size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from pipesched import compile
from pipesched.analysis import causes as attribution
from pipesched.analysis.causes import PARTS, Causes, Gaps, Split, causes, critical_path
from pipesched.analysis.timeline import slot_costs, timeline
from pipesched.diagnostics import PipeschedError
from pipesched.examine import Examination, Options
from pipesched.model.columns import Ints
from pipesched.model.costs import Cost, Costs, Ticks
from pipesched.report import Report
from pipesched.schedule_analysis import Analysis
from pipesched.source import Source
from pipesched.verbs.recognize import Known, recognize


@dataclass(frozen=True)
class Growth:
    """What each further microbatch adds: to the makespan, and to every part of every rank's idle time.

    more: how many microbatches apart the two runs are.
    """

    more: int
    makespan: Fraction
    parts: Mapping[str, tuple[Fraction, ...]]

    @property
    def idle(self) -> tuple[Fraction, ...]:
        return tuple(sum(column, Fraction(0)) for column in zip(*self.parts.values(), strict=True))


@dataclass(frozen=True, eq=False)
class Why:
    """All about the idle time of one schedule. growth: None where the file has no m to vary.

    instead: the makespan of the same order if messages took no time (`no_latency`), and if every stage took the mean
    (`even_stages`); each only where that is not so already.
    """

    examined: Examination
    causes: Causes
    gaps: Gaps
    split: Split
    growth: Growth | None
    known: Known | None
    instead: Mapping[str, Fraction]

    @property
    def analysis(self) -> Analysis:
        return self.examined.analysis

    @property
    def report(self) -> Report:
        return self.examined.report

    @property
    def exit_status(self) -> int:
        """That of the verdict."""
        return self.report.exit_status

    def __str__(self) -> str:
        return self.text()

    def text(self, *, every: bool = False) -> str:
        """What the command prints. every: every rank, all of the critical path, and every gap."""
        from pipesched.verbs import why_report

        return why_report.text(self, every=every)

    def to_json(self) -> dict[str, object]:
        """The published form, see ``emit/README.md``."""
        from pipesched.verbs import why_report

        return why_report.as_json(self)

    def parts(self) -> dict[str, tuple[Fraction, ...]]:
        """The parts of the idle time by rank, in the user's unit."""
        return _parts(self.analysis, self.split)

    @cached_property
    def path(self) -> list[int]:
        """The operations of the critical path."""
        return critical_path(self.analysis.timeline, self.causes)

    @property
    def path_messages(self) -> Fraction:
        """How long the critical path is on messages."""
        return self.analysis.time(int(self.causes.lag[self.path].sum()))

    @cached_property
    def longest_first(self) -> list[int]:
        """The gaps by length, then by rank and time."""
        found: list[int] = np.argsort(-self.gaps.length, kind="stable").tolist()
        return found

    def chain(self, gap: int) -> list[int]:
        """What a gap waits for, the operation that ends the wait first."""
        return attribution.chain(gap, self.gaps, self.analysis.timeline, self.causes)

    def work(self) -> tuple[Fraction, ...]:
        """By rank, of what ran."""
        cost = np.where(self.analysis.timeline.start >= 0, slot_costs(self.analysis.schedule, self.analysis.ticks), 0)
        sums = np.zeros(self.analysis.schedule.ranks, dtype=np.int64)
        np.add.at(sums, self.analysis.schedule.rank, cost)
        return tuple(map(self.analysis.time, sums.tolist()))

    def idle(self) -> tuple[Fraction, ...]:
        """By rank, the sum of its parts."""
        return tuple(self.analysis.makespan - work for work in self.work())


def why(source: Source, options: Options) -> Why:
    """Where the idle time of a file comes from.

    Raises:
        PipeschedError: what keeps the file from being a schedule; costs that do not fit it.
    """
    examined = compile.examined(source, options)
    made = examined.analysis
    found, gaps, split = explained(made)
    growth = _growth(source, examined, split)
    return Why(examined, found, gaps, split, growth, recognize(made.schedule, source), _instead(made))


def explained(made: Analysis) -> tuple[Causes, Gaps, Split]:
    """Why each operation starts when it does, when the ranks idle, and the split of that."""
    found = causes(made.schedule, made.dependencies, made.timeline, made.ticks)
    gaps = attribution.gaps(made.schedule, made.timeline, found)
    return found, gaps, attribution.split(made.schedule, made.timeline, made.ticks, gaps)


def _instead(made: Analysis) -> dict[str, Fraction]:
    """What the makespan were at other costs; nothing of an order that is stuck."""
    given = dict(made.costs.given)
    tries: dict[str, dict[str, Cost]] = {"no_latency": {**given, "C": Fraction(0)}}
    tries["even_stages"] = {key: _mean(cost) if key != "C" else cost for key, cost in given.items()}
    found = {}
    for name, other in tries.items():
        ticks = Costs(other).ticks(made.schedule.stages)
        if made.finished and not _same(ticks, made.ticks):
            found[name] = Fraction(timeline(made.schedule, made.dependencies, ticks).makespan, ticks.scale)
    return found


def _mean(cost: Cost) -> Fraction:
    return sum(cost, Fraction(0)) / len(cost) if isinstance(cost, tuple) else cost


def _same(a: Ticks, b: Ticks) -> bool:
    """Whether no operation and no message takes longer or shorter."""

    def equal(x: Ints | None, y: Ints | None) -> bool:
        if x is None or y is None:
            return x is y
        return bool((x * b.scale == y * a.scale).all())

    return equal(a.compute, b.compute) and equal(a.message, b.message) and equal(a.pair, b.pair)


def _parts(made: Analysis, split: Split) -> dict[str, tuple[Fraction, ...]]:
    return {part: tuple(map(made.time, getattr(split, part).tolist())) for part in PARTS}


def _growth(source: Source, examined: Examination, split: Split) -> Growth | None:
    """The growth from m to the first larger size, of a few, that the file takes."""
    made, parameters = examined.analysis, dict(examined.loaded.schedule.parameters)
    if examined.loaded.unit is None or "m" not in parameters or not made.finished:
        return None
    m, ranks = parameters["m"], made.schedule.ranks
    for more in dict.fromkeys(x for x in (ranks, 2 * ranks, m, 2, 1) if x > 0):
        larger = replace(examined.options, parameters={**parameters, "m": m + more}, microbatches=m + more)
        try:
            loaded = compile.load(source, larger)
            other = Analysis(loaded.schedule, loaded.costs(larger.costs))
            if not other.finished:
                continue
        except PipeschedError:
            continue
        if other.schedule.stages != made.schedule.stages:
            continue
        before, after = _parts(made, split), _parts(other, explained(other)[2])
        return Growth(
            more,
            (other.makespan - made.makespan) / more,
            {part: tuple((b - a) / more for a, b in zip(before[part], after[part], strict=True)) for part in PARTS},
        )
    return None
