"""The verdict on a file of calls on engines."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pipesched import render
from pipesched.analysis.communication import STRICT, parse_model
from pipesched.diagnostics import Code, fail
from pipesched.engines.calls import Calls, read
from pipesched.engines.meetings import Meetings
from pipesched.examine import Options
from pipesched.report.parts import Parts
from pipesched.report.report import Report
from pipesched.support.source import Source


@dataclass(frozen=True)
class Called(Report):
    """The verdict on calls: the calls of a group agree, messages match, and no waits form a cycle."""

    calls: Calls = field(default_factory=Calls, repr=False)

    def counted(self) -> dict[str, int]:
        """Return the numbers of ranks, calls, engines, groups, meetings and messages."""
        every = [(rank, call) for rank, calls in enumerate(self.calls.ranks) for call in calls]
        made = Meetings(self.calls)
        return {
            "ranks": len(self.calls.ranks),
            "calls": len(every),
            "engines": len({(rank, call.engine) for rank, call in every}),
            "groups": len(self.calls.groups),
            "meetings": sum(max(map(len, of)) for of in made.collective.values()),
            "messages": sum(len(sends) for sends, _ in made.channels.values()),
        }

    def line(self, *, color: bool = False) -> str:
        """Return the verdict on one line."""
        if not self.ok:
            return super().line(color=color)
        counts = ", ".join(f"{count} {name}" for name, count in self.counted().items())
        return f"{render.paint('ok', 'ok', color)}  {render.clean(self.source or '')}   {counts}"

    def text(self, *, color: bool = False, verbose: bool = False) -> str:
        """Return the findings, then the verdict."""
        if not self.ok:
            return super().text(color=color, verbose=verbose)
        said = f"calls of a group agree · messages match · {self.parts.communication}"
        return f"{self.line(color=color)}\n    {said}"

    def to_json(self) -> dict[str, object]:
        """Return the published form: that of a report, with the counts under `calls`."""
        return {**super().to_json(), "calls": self.counted() if self.calls.ranks else None}


def verify(source: Source, options: Options) -> Report:
    """Verify a file of calls under the model of `--comm`, strict by default.

    Raises:
        PipeschedError: PS225 if options for schedules are given; PS265, PS266.
    """
    if replace(options, owned=(), comm=None, max_ops=Options().max_ops) != Options():
        message = f"{source.name} has calls on engines: of the options for schedules, only --comm applies"
        raise fail(Code.USAGE, message, help="omit the others")
    calls, model = read(source), parse_model(options.comm or str(STRICT))
    made = Meetings(calls)
    found = list(made.differing())
    if not made.uneven:
        found += made.deadlock(model)
    parts = Parts(len(calls.ranks), communication=made.verdict(model))
    return Called(source.name, source.name, parts=parts, diagnostics=tuple(found), calls=calls)
