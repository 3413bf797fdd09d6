"""``emit --mend``: repairs an order that hangs or pairs messages wrongly, before it is verified and written.

    compute orders wait for each other      an operation that others await runs earlier        `mend.computes`
    messages wait, or are paired wrongly    receives are posted earlier, where that suffices;
                                            or all messages are placed again: each is sent and received at one instant
                                            of the run, which is safe under every model         `lower.communicate`

No compute operation is added, removed or relabelled: an order that lacks one stays wrong, and is reported. The repair
with the shortest makespan is chosen; if both are equally short, the one that only posts receives earlier.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from pipesched import compile
from pipesched.analysis.standstill import of_program
from pipesched.check.checks import Subject
from pipesched.check.findings import SHOWN, label
from pipesched.diagnostics import Diagnostic, Label
from pipesched.examine import Examination, Options
from pipesched.formats.readers import Loaded
from pipesched.mend.codes import MendCode
from pipesched.mend.computes import repaired
from pipesched.model.numbers import shown
from pipesched.model.schedule import Program, Schedule
from pipesched.schedule_analysis import Analysis

HOISTS = 64
"""Limit on the receives that a repair posts earlier."""


@dataclass(frozen=True)
class Mend:
    """The option `--mend`, and the changes of a repair: a sentence, labels at the moved entries, notes on its costs."""

    mend: bool = False
    changed: str = ""
    labels: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Repair:
    """A repaired file. changed: a description of the moves. labels: the moved entries in the file. free: a shorter
    order that holds more activations than allowed.
    """

    made: Examination
    changed: str = ""
    labels: tuple[Label, ...] = ()
    free: Analysis | None = None

    @property
    def makespan(self) -> Fraction:
        """The makespan if messages queue under the communication model."""
        analysis = self.made.analysis
        return analysis.makespan if analysis.queued is None else analysis.queued


def mended(loaded: Loaded, options: Options, messages: bool) -> tuple[Loaded, Options]:
    """Return the repaired file, and the options with the changes.

    A file that is correct, or that no repair makes correct, is returned unchanged. Without `messages`, only the compute
    order is checked and repaired.
    """
    if not messages:
        loaded = replace(loaded, schedule=loaded.schedule.with_program(None))
    first = compile.examine(loaded, options)
    if first.report.ok:
        return loaded, options.owning(Mend(changed=_NOTHING[messages]))
    ordered = _ordered(first)
    found = [] if ordered is None else [_hoisted(ordered.made), _placed_again(ordered.made)]
    if ordered is None or not (found := [one for one in found if one is not None]):
        return loaded, options.owning(
            Mend(changed="nothing: operations are only moved, never added, removed or renamed")
        )
    best = min(found, key=lambda one: one.makespan)
    changed = "; ".join(filter(None, (ordered.changed, best.changed)))
    made = Mend(True, changed, (*ordered.labels, *best.labels), tuple(_costs(first, best, ordered.free)))
    return best.made.loaded, options.owning(made)


_NOTHING = {
    True: "nothing, since the file is already correct",
    False: "nothing, since the compute order is correct; the reader of this target places sends and receives",
}


def changes(subject: Subject) -> Iterator[Diagnostic]:
    """Yield PS910, which lists the changes that the repair made."""
    made = subject.of(Mend)
    if made.changed:
        yield Diagnostic(MendCode.MENDED, f"mended: {made.changed}", made.labels, made.notes)


def _having(first: Examination, schedule: Schedule) -> Examination:
    return compile.examine(replace(first.loaded, schedule=schedule), first.options)


def _ordered(first: Examination) -> _Repair | None:
    """Return the file with a compute order that finishes, unchanged if it already does; None if not found."""
    schedule = first.analysis.schedule
    found = repaired(first.analysis, first.caps)
    if found is None:
        return None
    if not found.moved:
        return _Repair(first, free=found.free)
    words = [label(schedule, at, f"{schedule.slot(at)} now runs before {schedule.slot(to)}") for at, to in found.moved]
    changed = f"{_count(len(words), 'operation')} run{'s' * (len(words) == 1)} earlier than written"
    made = _having(first, schedule.with_program(None).taken(found.entries))
    return _Repair(made, changed, tuple(words[:SHOWN]), found.free)


def _placed_again(ordered: Examination) -> _Repair | None:
    """Return the file with its messages placed by the lowering; None if that does not make the file correct."""
    schedule = ordered.loaded.schedule
    made = _having(ordered, schedule.with_program(None))
    if not made.report.ok:
        return None
    moved = "" if schedule.program is None else "sends, receives and reductions are placed again"
    return _Repair(made, moved)


def _hoisted(ordered: Examination) -> _Repair | None:
    """Return the file with some receives posted earlier; None if that does not make the file correct."""
    own = program = ordered.loaded.program
    at, labels = np.arange(0 if own is None else len(own)), list[Label]()
    for _ in range(HOISTS):
        if own is None or program is None or (stop := of_program(program, ordered.analysis.model)) is None:
            break
        stands = {link.blocked.rank: link.places[0] for link in stop.cycle}
        moves = [(link.places[2], stands[link.other]) for link in stop.cycle if link.other in stands]
        moves = [move for move in moves if _may_move(program, *move)]
        if not moves:
            return None
        receive, before = moves[0]
        labels.append(label(own, int(at[receive]), f"{own[int(at[receive])]} is now before {own[int(at[before])]}"))
        at = np.concatenate([at[:before], at[[receive]], np.delete(at[before:], receive - before)])
        program = own.taken(at)
    if program is None or not labels:
        return None
    made = _having(ordered, ordered.loaded.schedule.with_program(program))
    how = f"{_count(len(labels), 'receive')} posted earlier"
    return _Repair(made, how, tuple(labels[:SHOWN])) if made.report.ok else None


def _may_move(program: Program, receive: int, before: int) -> bool:
    """Return True if the entry `receive` is a receive outside of batches and comes after the entry `before`."""
    inside = 0 <= before < receive < len(program)
    return inside and bool(program.receives[receive]) and int(program.group[receive]) < 0


def _costs(first: Examination, best: _Repair, free: Analysis | None) -> Iterator[str]:
    """Yield notes that compare the repair with the given file: the makespan, with the assumed costs, and the peak."""
    before, after = first.analysis, best.made.analysis
    was = f"; {shown(before.makespan)} for the compute order as written if no send waits" if before.finished else ""
    costs = str(after.costs) or "F=1,I=1,W=1,B=2,C=0, since none are given"
    yield f"makespan {shown(best.makespan)} with messages queued under {after.model}{was}; costs {costs}"
    peaks = [max(made.memory.peak, default=Fraction(0)) for made in (before, after)]
    yield f"peak {shown(peaks[1])}, and {shown(peaks[0])} as written"
    if free is not None:
        more = shown(max(free.memory.peak))
        yield f"makespan {shown(free.makespan)} is possible with peak {more}, if no send waits: use --mem-cap {more}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
