"""An answer as text: the verdict, its terms, its proof, and a table of what is known.

proved optimal: makespan 27
    for: linear placement, p=4 v=1 m=8, split backward, costs F=1,I=1,W=1,C=0, release W, cap 4
    no schedule is shorter: ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipesched.model.numbers import shown
from pipesched.model.verdict import FOUND, INFEASIBLE, NOTHING, PROVED
from pipesched.optimize.answer import words

if TYPE_CHECKING:
    from pipesched.optimize.answer.optimum import Optimum

_COLORS = {PROVED: "32", FOUND: "33", NOTHING: "33", INFEASIBLE: "31"}


def text(answer: Optimum, *, color: bool = False) -> str:
    """The verdict, what it is for, what proves it, and the best known schedules beside it."""
    lines = [_painted(answer.verdict, answer.status, color), f"    for: {answer.terms}"]
    lines += [f"    {answer.judged.because}"] if answer.judged else []
    if answer.status == FOUND and answer.reason:
        lines.append(f"    stopped: {answer.reason}")
    lines += [f"    note: {note}" for note in answer.notes]
    lines += [f"    help: {told.help} (pipesched explain {told.code})" for told in answer.diagnostics]
    if answer.makespan is not None:
        lines += [f"    {_times(answer)}", f"    peak {shown(max(answer.peak))}      [{words.listed(answer.peak)}]"]
        lines += [*_beside_given(answer), "", *_table(answer)]
    return "\n".join(lines)


def _times(answer: Optimum) -> str:
    assert answer.makespan is not None and answer.span is not None and answer.work is not None
    value = answer.makespan if answer.objective == "makespan" else answer.span
    idle = value - answer.work
    ratio = f" ({float(100 * idle / value):.1f} %)" if value else ""
    other = f"span {shown(answer.span)}" if answer.objective == "makespan" else f"makespan {shown(answer.makespan)}"
    return f"{answer.objective} {shown(value)} = {shown(answer.work)} work + {shown(idle)} idle{ratio};  {other}"


def _beside_given(answer: Optimum) -> list[str]:
    """How it compares with the schedule that was given."""
    given, value = answer.given, answer.value
    if given is None or value is None:
        return []
    theirs = given.span if answer.objective == "span" else given.makespan
    remark = f", which is {given.remark}" if given.remark == "over the cap" else ""
    if theirs == value:
        return [f"    as long as {given.name}{remark}"]
    more = f" ({float(100 * abs(theirs - value) / theirs):.1f} %)" if theirs else ""
    longer = "shorter" if value < theirs else "longer"
    return [f"    {shown(abs(theirs - value))}{more} {longer} than {given.name}{remark}"]


def _table(answer: Optimum) -> list[str]:
    """The schedules of the library at this size, in the order of the objective."""
    assert answer.makespan is not None and answer.span is not None
    own = (answer.makespan, answer.span, max(answer.peak), "this schedule", "")
    rows = [(k.makespan, k.span, k.peak, k.name, k.remark) for k in answer.known]
    by = 1 if answer.objective == "span" else 0
    cells = [("", "makespan", "span", "peak", "")]
    listed = sorted([own, *rows], key=lambda row: (row[by], row is not own))
    cells += [(name, shown(a), shown(b), shown(peak), remark) for a, b, peak, name, remark in listed]
    width = [max(len(row[i]) for row in cells) for i in range(4)]
    return [
        f"    {a.ljust(width[0])}  {b.rjust(width[1])}  {c.rjust(width[2])}  {d.rjust(width[3])}  {e}".rstrip()
        for a, b, c, d, e in cells
    ]


def _painted(verdict: str, status: str, color: bool) -> str:
    head, rest = verdict[: len(status)], verdict[len(status) :]
    return f"\x1b[1;{_COLORS.get(status, '33')}m{head}\x1b[0m{rest}" if color else verdict
