"""The verdict on a schedule, extended by the verdict on a recorded run."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pipesched.diagnostics import Code, Diagnostic, PipeschedError, fail
from pipesched.examine import Examination, Options
from pipesched.interop.codes import InteropCode
from pipesched.interop.recorded import desk, recorded_runs
from pipesched.interop.recorded.check_recorded import check_recorded, words
from pipesched.interop.recorded.recorded_run import Held
from pipesched.interop.values import Run
from pipesched.report.report import Report
from pipesched.support.source import Source


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded run, compared with the schedule. by: the recorder. named: True if its messages have names; otherwise
    they are compared by count, order and size.
    """

    by: str
    ranks: int
    steps: int
    messages: int
    named: bool
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        steps = f"{self.steps} step{'s' * (self.steps != 1)}"
        how = "" if self.named else ", by their number, order and size"
        notes = "".join(f"; {note}" for note in self.notes)
        return (
            f"recorded run ({self.by}): {self.ranks} ranks, {steps}, {self.messages:,} messages as planned{how}{notes}"
        )

    def to_json(self) -> dict[str, object]:
        """Return the recorder, the counts and the notes."""
        counts = {"ranks": self.ranks, "steps": self.steps, "messages": self.messages}
        return {"by": self.by, **counts, "named": self.named, "notes": list(self.notes)}


def judged(report: Report, made: Examination | None, source: Source | None, options: Options) -> Report:
    """Extend the report on a schedule by the findings on its recorded run, read from the requested folder. Without a
    schedule, return the report on the records.

    Raises:
        PipeschedError: PS225 if the file is an answer.
    """
    if made is None and source is None:
        return desk.verify(options)
    if made is None and not report.ok:
        return report
    if made is None:
        help = "give its schedule: `pipesched emit ANSWER --target ps`"
        raise fail(Code.USAGE, "a recorded run is compared with a schedule, not with an `optimize` answer", help=help)
    program = made.analysis.program
    if program is None:
        return report
    if not program.messages:
        none = Diagnostic(InteropCode.RECORD_DIFFERS, "the schedule has no messages to record")
        return replace(report, diagnostics=(*report.diagnostics, none))
    try:
        runs = [Held(recorded, program) for recorded in recorded_runs.read(options.of(Run).recorded, program)]
    except PipeschedError as error:
        return replace(report, diagnostics=(*report.diagnostics, *error.diagnostics))
    written = made.loaded.program is not None
    found = tuple(finding for held in runs for finding in check_recorded(held, written=written))
    noted = tuple(_recording(held, written) for held in runs)
    return replace(report, diagnostics=(*report.diagnostics, *found), recorded=noted)


def _recording(held: Held, written: bool) -> Recording:
    """Return the summary of a recorded run, with a note if its trainer orders messages differently from pipesched."""
    made, notes = held.recorded, held.recorded.notes
    other = next((i for i in held.misplaced.tolist() if i >= 0), -1)
    if other >= 0 and not made.named and not written:
        said = f"rank {made.rank[other]} posts in a different order from pipesched ({words(held, other)})"
        notes = (*notes, f"{said}: the order of messages is checked only if the file contains them")
    return Recording(made.by, made.ranks, held.steps, held.sent, made.named, notes)
