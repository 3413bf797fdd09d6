"""The incident desk: the verdict on a stopped job from its records, without its schedule.

    error[PS897]: rank 5 left the common order at call 12 of its record (entry 12), all_gather in tp (ranks 4, 5, 6, 7)
      = ranks 4, 6, 7, which have the same role, made a different call: all_reduce in tp
      = likely cause: it left out all_reduce in tp
      = rank 4 waits in all_reduce in tp (ranks 4, 5, 6, 7), which rank 5 has not called
      = help: look at rank 5 first: its log, its stack, the code that makes this call

The first rank is the one that left the common order (`left_order`). If none did, it is the one that waits for nobody
while others wait for it (`blocked`): it was killed if it left no record, and otherwise stopped by itself. If ranks wait
for each other in a cycle and none left the common order, no rank is named first. Missing records are also reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pipesched.analysis.standstill import together
from pipesched.diagnostics import Diagnostic, PipeschedError
from pipesched.examine import Options
from pipesched.interop.codes import InteropCode
from pipesched.interop.recorded.blocked import Blocked, Wait
from pipesched.interop.recorded.job import Job, named, of_folder
from pipesched.interop.recorded.left_order import Left, Order, cause
from pipesched.interop.values import Run
from pipesched.report.report import Report

_SHOWN = 4  # most waits in words


@dataclass(frozen=True)
class Incident(Report):
    """The verdict on the records of a job. first: the rank to look at first, or None. likely: the likely cause."""

    job: Job | None = field(default=None, repr=False)
    first: int | None = None
    likely: str = ""

    def _counts(self) -> str:
        job = self.job
        assert job is not None
        return f"{len(job.ranks):,} ranks, {len(job.call):,} calls in {len(job.groups)} groups, recorded by {job.by}"

    def line(self, *, color: bool = False) -> str:
        """Return the verdict on one line."""
        return super().line(color=color) if not self.ok else f"ok  {self.source}   {self._counts()}"

    def text(self, *, color: bool = False, verbose: bool = False) -> str:
        """Return the findings, then the verdict."""
        if not self.ok:
            return super().text(color=color, verbose=verbose)
        return f"{self.line(color=color)}\n    every recorded call has completed, and all ranks keep to a common order"

    def to_json(self) -> dict[str, object]:
        """Return the published form of a report, with the rank and the cause under `incident`."""
        job = self.job
        if job is None:
            return super().to_json()
        counts = {"ranks": len(job.ranks), "calls": len(job.call), "missing": list(job.missing), "by": job.by}
        return {**super().to_json(), "incident": {"first": self.first, "cause": self.likely or None, **counts}}


def verify(options: Options) -> Report:
    """Return the verdict on the records in the requested folder. Errors are part of the report; none is raised."""
    folder = options.of(Run).recorded
    try:
        job = of_folder(folder)
    except PipeschedError as error:
        return Incident(folder, folder, diagnostics=error.diagnostics)
    blocked = Blocked(job)
    left = Order(blocked).left()
    first, likely, found = _left(blocked, left) if left is not None else _stopped(blocked)
    every = (*_unread(job), *([found] if found else []))
    return Incident(folder, folder, diagnostics=every, job=job, first=first, likely=likely)


def _unread(job: Job) -> Iterator[Diagnostic]:
    """Yield a finding for the ranks without a record, and one for each record that cannot be read."""
    if absent := [rank for rank in job.missing if rank not in job.unread]:
        message = f"no record of {named(absent)}"
        note = "their calls are known only from the records of other ranks; nothing is guessed about them"
        help = "a rank that was killed writes no record: look at its log first"
        yield Diagnostic(InteropCode.RANK_ABSENT, message, notes=(note,), help=help)
    yield from job.unread.values()


def _left(blocked: Blocked, left: Left) -> tuple[int, str, Diagnostic]:
    job = blocked.job
    number = left.at - int(job.start[job.place[left.rank]])
    likely = cause(job, left)
    meant = f": {job.calls[left.meant[0]]}" if left.meant else ""
    message = (
        f"rank {left.rank} left the common order at call {number} of its record (entry {job.record[left.at]}), "
        f"{job.said(left.at)}"
    )
    notes = (f"{left.why}{meant}", f"likely cause: {likely}", *_waits(blocked, left.rank))
    help = f"look at rank {left.rank} first: its log, its stack, the code that makes this call"
    return left.rank, likely, Diagnostic(InteropCode.LEFT_ORDER, message, notes=notes, help=help)


def _stopped(blocked: Blocked) -> tuple[int | None, str, Diagnostic | None]:
    job, roots = blocked.job, blocked.roots
    if not blocked.waits:
        return None, "", None
    if not roots:
        cycle = blocked.cycle()
        likely = "the calls of these ranks wait for each other in a cycle, although no rank left the common order"
        message = f"the job stops: {together(cycle)}"
        help = "verify its schedule under the communication model of the run, such as `--comm one-stream`"
        return None, likely, Diagnostic(InteropCode.RUN_STOPS, message, notes=tuple(_waits(blocked, *cycle)), help=help)
    first = max(roots, key=lambda rank: (rank in job.place, roots[rank], rank not in job.unread, -rank))
    waiting = sorted(blocked.waiting_for(first))
    for_it = f", and {named(waiting)} wait{'s' * (len(waiting) == 1)} for it"
    if first not in job.place:
        said, likely = "left no record that can be read", "it was killed, or could not write its record"
    else:
        mine = job.of(job.place[first])
        last = f" after {job.said(mine.stop - 1)} (entry {job.record[mine.stop - 1]})" if mine.stop > mine.start else ""
        said, likely = f"made no further call{last}", "it computes, hangs outside its calls, or raised an exception"
    others = [rank for rank in sorted(roots) if rank != first]
    more = (f"some ranks also wait for {named(others)}, which had no open call",) if others else ()
    notes = (f"likely cause: {likely}", *more, *_waits(blocked, first))
    help = f"look at rank {first} first: its log, its stack, its device"
    return (
        first,
        likely,
        Diagnostic(InteropCode.RUN_STOPS, f"the job stops: rank {first} {said}{for_it}", notes=notes, help=help),
    )


def _waits(blocked: Blocked, *of: int) -> Iterator[str]:
    """Yield the waits of these ranks and of the ranks that wait for them, as text."""
    near = [*(rank for rank in of if rank in blocked.waits), *(x for rank in of for x in blocked.waiting_for(rank))]
    for rank in [*dict.fromkeys(near)][:_SHOWN]:
        wait = blocked.waits[rank]
        yield f"rank {rank} waits in {blocked.job.said(wait.call)}, {_which(blocked.job, wait)}"


def _which(job: Job, wait: Wait) -> str:
    """Describe the ranks that a call needs; a rank without a record is only described as needed."""
    known = [rank for rank in wait.needs if rank in job.place]
    one = len(known or wait.needs) == 1
    if not wait.needs:
        return "which all members have called"
    if not known:
        return f"in which {named(wait.needs)} {'is' if one else 'are'} also needed"
    if wait.uncalled:
        return f"which {named(known)} {'has' if one else 'have'} not called"
    return f"for which {named(known)} {'is' if one else 'are'} not ready"
