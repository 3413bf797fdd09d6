"""A loaded schedule with its verdict and its times: what every comparison starts from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from pipesched.analysis.assumptions import remarks, used
from pipesched.analysis.dependencies import Dependencies
from pipesched.analysis.timeline import Timeline, timeline
from pipesched.compile import examine, load
from pipesched.diagnostics import Diagnostic, PipeschedError
from pipesched.examine import Loaded, Options
from pipesched.model.costs import Costs, Ticks
from pipesched.model.ops import Op
from pipesched.model.origin import Sited
from pipesched.model.schedule import Schedule
from pipesched.render import sizes
from pipesched.report import Report
from pipesched.source import Source, Span


@dataclass(frozen=True, eq=False)
class Run:
    """A schedule, who waits for whom, and when, as far as it runs; and what `verify` says of it."""

    loaded: Loaded
    report: Report
    costs: Costs
    ticks: Ticks
    dependencies: Dependencies
    times: Timeline

    @property
    def schedule(self) -> Schedule:
        return self.loaded.schedule

    @property
    def makespan(self) -> Fraction:
        """The end of the last operation that runs."""
        return self.time(self.times.makespan)

    def time(self, ticks: int) -> Fraction:
        """Ticks in the user's unit."""
        return Fraction(int(ticks), self.ticks.scale)

    @property
    def title(self) -> str:
        """``zb_h1  p=4 m=8``."""
        return f"{self.schedule.name}  {sizes(self.report.parameters)}"

    @property
    def fault(self) -> Diagnostic | None:
        """The first error of the verdict."""
        return next((found for found in self.report.diagnostics if found.severity == "error"), None)

    @cached_property
    def kinds(self) -> set[str]:
        """The costs that its times depend on."""
        return used(self.schedule, self.costs)

    @property
    def remarks(self) -> list[str]:
        """What is to be said of the costs."""
        return list(remarks(self.costs, self.kinds))

    @cached_property
    def _sited(self) -> Sited | None:
        origin = self.schedule.origin
        return origin if isinstance(origin, Sited) else None

    def spans(self, operations: Iterable[int]) -> list[Span | None]:
        """Where operations are written."""
        if self._sited is None:
            return [self.schedule.origin.place(i).span for i in operations]
        site, spans = self._sited.sited()
        return [spans[int(site[i])] for i in operations]


def run(source: Source, options: Options) -> Run:
    """A file, run once at the costs of the options over its own.

    Raises:
        PipeschedError: as `load`; PS225, options that mean nothing for it.
    """
    loaded = load(source, options)
    report = examine(loaded, options)
    if report.exit_status == 2:
        raise PipeschedError(report.diagnostics)
    return timed(loaded, report, options.costs)


def timed(loaded: Loaded, report: Report, costs: Costs | None) -> Run:
    """What was loaded and examined, with its times."""
    used = loaded.costs(costs)
    ticks = used.ticks(loaded.schedule.stages)
    dependencies = Dependencies.of(loaded.schedule)
    return Run(loaded, report, used, ticks, dependencies, timeline(loaded.schedule, dependencies, ticks))


def slot(schedule: Schedule, index: int) -> str:
    """An operation as in the order notation, with its partner in an overlap pair: ``F3.1+B2.0``."""
    low = index - int(schedule.joined[index])
    high = low + 1 + int(low + 1 < len(schedule) and schedule.joined[low + 1])
    return "+".join(str(schedule[i]) for i in range(low, high))


def called(schedule: Schedule, index: int, *, where: bool = True) -> str:
    """An operation in words: ``B4 of stage 3 on rank 3``."""
    op, stage, microbatch = (int(column[index]) for column in (schedule.op, schedule.stage, schedule.microbatch))
    words = f"{Op(op).name}{microbatch} of stage {stage}"
    return f"{words} on rank {int(schedule.rank[index])}" if where else words
