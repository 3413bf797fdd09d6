"""The result of `verify` as a value: checks, findings, costs.

    ok  interleaved 1F1B  p=4 v=2 m=8   128 ops, 112 messages
        complete · data flow · channels FIFO · deadlock-free (strict, so under every model)
        peak 5.5 of cap none, on rank 0      [5.5  4.5  3.5  2.5]
        makespan 57 = 48 work + 9 idle   bubble 15.8 % (3/19)
        claims 2 of 2 hold

A verdict is good if no diagnostic is an error. `str(report)` is the output of the command line, `to_json()` the
published form (``emit/report.schema.json``). If a broken file leaves a part unknown, its JSON keys exist with null or
empty values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Generic, Protocol, TypeVar

from pipesched import render
from pipesched.analysis.idle import headline
from pipesched.diagnostics import Diagnostic, Judged, PipeschedError
from pipesched.extension import Measure, rows
from pipesched.model import lists
from pipesched.model.numbers import Value, ranges, share, shown
from pipesched.report.parts import Claim, Parts, activations
from pipesched.schedule_analysis import Analysis
from pipesched.support.foreign import Foreign
from pipesched.support.safe import safe

Part = TypeVar("Part")
_INDENT = " " * 4


class _Known(Generic[Part]):
    """A descriptor of a part of a report; reading an unknown part raises PipeschedError with the findings."""

    def __init__(self, of: Callable[[Parts], Part | None]) -> None:
        self.of = of

    def __get__(self, report: Report | None, owner: type) -> Part:
        if report is None:
            raise AttributeError("read this attribute of a report, not of its class")
        part = self.of(report.parts)
        if part is None:
            raise PipeschedError(report.diagnostics)
        return part


class Recorded(Protocol):
    """A recorded run that an extension compared with the schedule, in words and in JSON."""

    def to_json(self) -> dict[str, object]: ...


class Verdict(Protocol):
    """An extension's verdict on a whole file, not only on its schedule, such as `optimizer.verdict.Verdict`."""

    @property
    def proved(self) -> bool: ...
    @property
    def line(self) -> str: ...
    @property
    def because(self) -> str: ...
    def to_json(self) -> dict[str, object]: ...


@dataclass(frozen=True)
class Report(Judged):
    """The result of `verify` for one schedule at one size.

    A correct schedule has all parts: ranks, stages, microbatches, operations, slots, messages, communication, memory
    and time. In a broken schedule some parts are unknown: `report.time` then raises PipeschedError, and
    `report.parts.time` is None. subject: the analysis that a notebook draws. forward_only: whether there is no
    backward, so that nothing is trained. frozen: the stages that are not trained. verdict: the verdict on an
    optimizer's answer, if the file is one. not_judged: the answer's entries that were not checked. title: the
    schedule's display name, if not `name`. notes: remarks on how a framework made the schedule. recorded: the recorded
    runs that were compared with the schedule.
    """

    name: str | None
    source: str | None
    parameters: Mapping[str, Value] = field(default_factory=dict)
    parts: Parts = field(default_factory=Parts)
    diagnostics: tuple[Diagnostic, ...] = ()
    claims: tuple[Claim, ...] = ()
    subject: Analysis | None = field(default=None, repr=False, compare=False)
    forward_only: bool = False
    frozen: tuple[int, ...] = ()
    verdict: Verdict | None = None
    not_judged: tuple[str, ...] = ()
    title: str = ""
    notes: tuple[Foreign, ...] = ()
    recorded: tuple[Recorded, ...] = ()

    ranks = _Known(lambda parts: parts.ranks)
    stages = _Known(lambda parts: parts.stages)
    microbatches = _Known(lambda parts: parts.microbatches)
    operations = _Known(lambda parts: parts.operations)
    slots = _Known(lambda parts: parts.slots)
    messages = _Known(lambda parts: parts.messages)
    communication = _Known(lambda parts: parts.communication)
    memory = _Known(lambda parts: parts.memory)
    time = _Known(lambda parts: parts.time)

    def __getattr__(self, name: str) -> Any:
        """Return the part with this key, which an extension measures."""
        if name not in {row.key for row in rows(Measure)}:
            raise AttributeError(f"a report has no {name!r}")
        found = next((part for part in self.parts.more if part.key == name), None)
        if found is None:
            raise PipeschedError(self.diagnostics)
        return found

    def __repr__(self) -> str:
        return f"<Report {' '.join(self.line().split())}>"

    @property
    def makespan(self) -> Fraction:
        """The end of the last operation.

        Raises:
            PipeschedError: the findings, if the order never ends.
        """
        return self.time.makespan

    @property
    def bubble(self) -> Fraction:
        """The idle time of all ranks / (ranks x makespan): the share of the machine that does not compute.

        Raises:
            PipeschedError: the findings, if the order never ends.
        """
        return self.time.bubble

    @property
    def peak(self) -> tuple[Fraction, ...]:
        """The largest number of activations on each rank.

        Raises:
            PipeschedError: the findings, if the file is not an order.
        """
        return self.memory.peak

    def __str__(self) -> str:
        return self.text()

    def text(self, *, color: bool = False, verbose: bool = False) -> str:
        """Return the diagnostics with their places, then the verdict. verbose: all assumptions."""
        parts = [render.text(diagnostic, color=color) for diagnostic in self.diagnostics]
        if self.ok:
            return "\n\n".join([*parts, self._verdict(color, verbose)])
        more = [line for part in self.parts.more for line in part.lines()]
        if more:
            parts.append("\n".join([*more, *render.assumptions(self.parts.assumed, verbose=verbose)]))
        return "\n\n".join([*parts, self._count(color)])

    @property
    def rests_on(self) -> tuple[str, ...]:
        """The assumptions behind the costs and behind parts of extensions, in words."""
        time, more = self.parts.time, self.parts.assumed
        if not more and (time is None or not time.unit):
            return ()
        return (*(time.rests_on if time else ()), *more)

    def _repr_html_(self) -> str:
        """Return the picture and the text for a notebook."""
        words = f"<pre>{safe(self.text(), 'xml')}</pre>"
        if self.subject is None or not lists.known("picture"):
            return words
        return str(lists.make("picture", self.subject)) + words

    def line(self, *, color: bool = False) -> str:
        """Return the verdict on one line, for calls with many schedules or sizes."""
        if self.ok:
            facts = [self._head(color, self.source), *self._short_facts(), render.tally(self.diagnostics)]
            return "   ".join(fact for fact in facts if fact)
        first = self.fault
        assert first is not None
        title = self._title(self.source)
        parts = [render.paint("fail", "error", color), *title, render.concise(first, self.source)]
        more = len([d for d in self.diagnostics if d.severity == "error"]) - 1
        return "  ".join(parts) + (f" (and {more} more)" if more else "")

    def to_json(self) -> dict[str, object]:
        """Return the published form: numbers are integers or strings such as ``11/2``."""
        return {
            "ok": self.ok,
            "name": self.name,
            "title": self.title or None,
            "source": self.source,
            "parameters": dict(self.parameters),
            "ranks": self.parts.ranks,
            "stages": self.parts.stages,
            "microbatches": self.parts.microbatches,
            "forward_only": self.forward_only,
            **({"frozen": list(self.frozen)} if self.frozen else {}),
            "operations": self.parts.operations,
            "slots": self.parts.slots,
            "messages": self.parts.messages,
            "diagnostics": [render.as_json(diagnostic) for diagnostic in self.diagnostics],
            **self.parts.to_json(),
            "claims": [claim.to_json() for claim in self.claims],
            **({"recorded": [one.to_json() for one in self.recorded]} if self.recorded else {}),
            "proved": None if self.verdict is None else self.verdict.proved,
            "optimum": self.verdict and {**self.verdict.to_json(), "not_judged": list(self.not_judged)},
            **({"notes": list(self.notes)} if self.notes else {}),
        }

    def _title(self, name: str | None) -> list[str]:
        """Return the name of the schedule or the file, and the sizes; a missing name or missing sizes are left out."""
        return [part for part in (render.clean(name or ""), render.sizes(self.parameters)) if part]

    def _head(self, color: bool, name: str | None) -> str:
        operations, messages = ("?" if x is None else x for x in (self.parts.operations, self.parts.messages))
        counts = f"{operations} ops, {messages} messages"
        counts = f"frozen {ranges(self.frozen)}   {counts}" if self.frozen else counts
        counts = f"forward-only   {counts}" if self.forward_only else counts
        return "  ".join([render.paint("ok", "ok", color), *self._title(name)]) + "   " + counts

    def _count(self, color: bool) -> str:
        counted = render.tally(self.diagnostics)
        head = render.paint(f"{counted} in {render.clean(self.source)}" if self.source else counted, "bold", color)
        return "\n".join([head, *(_INDENT + note for note in self.notes)])

    def _short_facts(self) -> list[str]:
        memory, time = self.parts.memory, self.parts.time
        said = activations if self.parts.counted else shown
        peak = [f"peak {said(max(memory.peak))}"] if memory and memory.peak else []
        peak += [f"host memory {said(max(memory.host))}"] if memory and memory.host else []
        peak += [fact for part in self.parts.more for fact in part.short()]
        if time is None:
            return peak
        part = self.parts.communication
        length, remarks = time.unit.text, time.doubts if self.rests_on else time.remarks
        longer = [f"{part.model} {length(part.makespan)}"] if part and part.makespan is not None else []
        return [*peak, f"makespan {length(time.makespan)}", *longer, f"bubble {share(time.bubble)}", *remarks]

    def _verdict(self, color: bool, verbose: bool) -> str:
        """Return the text for a schedule whose verdict is good."""
        messages = self.parts.communication
        lines = [" · ".join(["complete", "data flow", "channels FIFO", *([str(messages)] if messages else [])])]
        lines += self.parts.memory.lines(unit=self.parts.counted) if self.parts.memory else []
        lines += [line for part in self.parts.more for line in part.lines()]
        if time := self.parts.time:
            lines += [headline(time, time.unit), *(time.doubts if self.rests_on else time.remarks)]
            lines += messages.queued(time.makespan, time.unit) if messages else []
        lines += [_claims_text(self.claims)] if self.claims else []
        if found := self.verdict:
            lines += [found.line, found.because, f"not judged: {', '.join(self.not_judged)}"]
        lines += [*self.notes, *map(str, self.recorded), *render.assumptions(self.rests_on, verbose=verbose)]
        warned = render.tally(self.diagnostics)
        head = self._head(color, self.title or self.name or self.source) + (f", {warned}" if warned else "")
        return "\n".join([head, *(_INDENT + line for line in lines)])


def _claims_text(claims: Sequence[Claim]) -> str:
    judged = [claim for claim in claims if claim.holds is not None]
    aside = len(claims) - len(judged)
    if not judged:
        return f"claims: none of {aside} is applicable"
    verdict = f"claims {sum(bool(claim.holds) for claim in judged)} of {len(judged)} hold"
    return verdict + (f", {aside} not applicable" if aside else "")
