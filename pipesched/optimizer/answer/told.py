"""An answer as text: the verdict, its terms, its proof, and a table of what is known.

proved optimal: makespan 27
    for: linear placement, p=4 v=1 m=8, split backward, costs F=1,I=1,W=1,C=0, release W, cap 4
    no schedule is shorter: ...
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from pipesched.analysis.idle import headline
from pipesched.model.costs import equations
from pipesched.model.numbers import percent, shown
from pipesched.model.verdict import FOUND, INFEASIBLE, NOTHING, PROVED
from pipesched.optimizer.answer import words

if TYPE_CHECKING:
    from pipesched.optimizer.answer.optimum import Optimum

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
    assert answer.makespan is not None and answer.span is not None
    return headline(answer.makespan, answer.span, answer.works, span_first=answer.objective == "span")


def _beside_given(answer: Optimum) -> list[str]:
    """How it compares with the schedule that was given."""
    given, value = answer.given, answer.value
    if given is None or value is None:
        return []
    theirs = given.span if answer.objective == "span" else given.makespan
    remark = f", which is {given.remark}" if given.remark == "over the cap" else ""
    if theirs == value:
        return [f"    as long as {given.name}{remark}"]
    more = f" ({percent(abs(theirs - value) / theirs)})" if theirs else ""
    longer = "shorter" if value < theirs else "longer"
    return [f"    {shown(abs(theirs - value))}{more} {longer} than {given.name}{remark}"]


def _table(answer: Optimum) -> list[str]:
    """The schedules of the library at this size, in the order of the objective."""
    assert answer.makespan is not None and answer.span is not None
    assert answer.bubble is not None and answer.span_bubble is not None
    own = ("this schedule", answer.makespan, answer.span, answer.bubble, answer.span_bubble, max(answer.peak), "")
    rows = [own, *((k.name, k.makespan, k.span, k.bubble, k.span_bubble, k.peak, k.remark) for k in answer.known)]
    rows.sort(key=lambda row: (row[2] if answer.objective == "span" else row[1], row is not own))
    cells = [(x, shown(a), shown(b), percent(c), percent(d), shown(e), remark) for x, a, b, c, d, e, remark in rows]
    return [_unit(answer), *_aligned([("", "makespan", "span", "bubble", "by span", "peak", ""), *cells])]


def _unit(answer: Optimum) -> str:
    """What a time is: that of `compare` is another where ranks have several stages; what else the rows assume."""
    placement = answer.instance.placement
    stages, ranks = placement.stages, placement.ranks
    other = "" if stages == ranks else f"; `pipesched compare` takes {Fraction(ranks, stages)} of that"
    costs, own = answer.instance.costs, answer.instance.kinds
    guessed = {key: text for key, text in costs.assumed.items() if key not in (*own, "FB")}
    if guessed and any(row.orders is None for row in answer.known):
        other += f"; assumed for other kinds of backward: {equations(guessed, costs)}"
    return f"    unit of time: costs of one of {stages} stages{other}"


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """The first and the last column to the left, numbers to the right."""
    width = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    return [
        f"    {'  '.join([row[0].ljust(width[0]), *map(str.rjust, row[1:-1], width[1:]), row[-1]])}".rstrip()
        for row in rows
    ]


def _painted(verdict: str, status: str, color: bool) -> str:
    head, rest = verdict[: len(status)], verdict[len(status) :]
    return f"\x1b[1;{_COLORS.get(status, '33')}m{head}\x1b[0m{rest}" if color else verdict
