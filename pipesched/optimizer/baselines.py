"""Baselines for an answer: the user's schedule, and the library's schedules at the same size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TypeAlias

import numpy as np

from pipesched.analysis.idle import Idle
from pipesched.model.costs import equations
from pipesched.model.numbers import digits, exact, percent, shown
from pipesched.model.placement import Placement
from pipesched.model.schedule import Schedule
from pipesched.optimizer.solve import convert
from pipesched.optimizer.solve.instance import Instance
from pipesched.optimizer.solve.problem import Orders, Problem
from pipesched.optimizer.verdict import placement_name
from pipesched.planning.byte_counts import gigabytes
from pipesched.schedule_analysis import Analysis
from pipesched.views import tables

MANIFEST = Path(__file__).with_name("library.txt")
"""Parameters of the library's schedules, and their placements (none if no order of the schedule can be an answer).
The file is written by `python -m tests.optimizer.test_library`.
"""
_ANSWERS, _ROWS = 4, 7  # most rows of the table: schedules that answer the question, and all rows


@dataclass(frozen=True, eq=False)
class Known:
    """A known schedule at the same size. spent: its work, idle times and length; peak: the largest peak over the ranks.

    fits: True if the peaks are within the caps. orders: the order on each rank; None if the schedule has a different
    placement, overlap slots, or the other kind of backward; `unlike` then names the difference. apart: the orders in
    which the two operations of an overlap slot run one after the other, which takes no longer.
    """

    name: str
    spent: Idle
    peak: Fraction
    fits: bool
    orders: Orders | None
    unlike: str = ""
    apart: Orders | None = None

    def __repr__(self) -> str:
        return f"<Known {self.name}: makespan {shown(self.spent.makespan)}, peak {shown(self.peak)}>"

    @property
    def remark(self) -> str:
        """The reason why the schedule does not answer the question, or an empty string if it does."""
        if self.orders is None:
            return self.unlike
        return "" if self.fits else "over the cap"

    @classmethod
    def of(cls, name: str, schedule: Schedule, instance: Instance, problem: Problem) -> Known:
        """Measure a schedule that does not deadlock, at the costs of the instance."""
        same = np.array_equal(schedule.placement.rank_of, instance.placement.rank_of)
        orders = convert.to_orders(problem, schedule) if same else None
        if orders is not None and instance.placement.frozen:
            schedule = convert.to_schedule(problem, orders, name)  # without operations that frozen stages lack
        made = Analysis(schedule, instance.costs, instance.release)
        assert made.idle is not None, "its compute orders wait for each other in a cycle"
        peaks = made.memory.peak
        fits = all(peak <= cap for peak, cap in zip(peaks, instance.caps or peaks, strict=True))
        joined = bool(schedule.joined.any())
        single = replace(schedule, second=np.zeros_like(schedule.second))
        apart = convert.to_orders(problem, single) if same and joined else orders
        unlike = "another placement" if not same else "overlap slots" if joined else "another kind of backward"
        return cls(name, made.idle, max(peaks), fits, orders, unlike=unlike, apart=apart)

    def to_json(self) -> dict[str, object]:
        """Return the name, the figures, and `fits`: whether the schedule itself could be the answer."""
        times = {name: getattr(self.spent, name) for name in ("makespan", "span", "bubble", "span_bubble")}
        return {"name": self.name, **exact(**times, peak=self.peak), "fits": self.fits and self.orders is not None}


def _figures(spent: Idle, peak: Fraction) -> tuple[Fraction, Fraction, Fraction, Fraction, Fraction]:
    """Return the figures of a schedule in the order of the table's columns."""
    return spent.makespan, spent.span, spent.bubble, spent.span_bubble, peak


def comparison(given: Known | None, value: Fraction, instance: Instance, peak: Fraction) -> list[str]:
    """Return lines that compare `value` with the user's schedule and, if that has a lower peak, suggest it as a cap."""
    if given is None:
        return []
    theirs = given.spent.span if instance.objective == "span" else given.spent.makespan
    remark = f", which is {given.remark}" if given.remark == "over the cap" else ""
    cap = f"    {given.name} holds less ({shown(given.peak)}): use --mem-cap {given.peak} for the best under that cap"
    caps = [cap] if given.peak < peak and instance.of_one is None else []
    if theirs == value:
        return [f"    as long as {given.name}{remark}", *caps]
    more = f" ({percent(abs(theirs - value) / theirs)})" if theirs else ""
    longer = "shorter" if value < theirs else "longer"
    return [f"    {instance.costs.unit.text(abs(theirs - value))}{more} {longer} than {given.name}{remark}", *caps]


Row: TypeAlias = "tuple[str, Fraction, Fraction, Fraction, Fraction, Fraction, str]"
"""Name, figures, remark."""


def table(known: Sequence[Known], instance: Instance, spent: Idle, peak: Fraction) -> list[str]:
    """Return the table of the found schedule (`spent`, `peak`) and the best baselines, sorted by objective."""
    own = ("this schedule", *_figures(spent, peak), "")
    rows = [own, *((k.name, *_figures(k.spent, k.peak), k.remark) for k in known)]
    rows.sort(key=lambda row: (row[2] if instance.objective == "span" else row[1], row is not own))
    best = [own, *(row for row in rows if row is not own and not row[-1])][:_ANSWERS]
    best += [row for row in rows if row not in best][: _ROWS - len(best)]
    others = [row[0] for row in rows if row not in best]
    more = [f"    and {len(others)} more: {', '.join(others)}"] if others else []
    return [*_unit(known, instance), *_aligned(instance, [row for row in rows if row in best]), *more]


def _aligned(instance: Instance, rows: Sequence[Row]) -> list[str]:
    """Return the rows as lines of text, aligned under the column heads."""
    said, one = instance.costs.unit.text, instance.of_one
    plain = one is None and not instance.costs.unit
    held = (shown if plain else digits) if one is None else lambda amount: gigabytes(amount * one)
    cells = [(x, said(a), said(b), percent(c), percent(d), held(e), remark) for x, a, b, c, d, e, remark in rows]
    heads = ("", "makespan", "span", "bubble", "by span", "peak" if plain else "activations", "")
    return [f"    {line}" for line in tables.table(heads, cells, left=(0, 6)).split("\n")]


def _unit(known: Sequence[Known], instance: Instance) -> Iterator[str]:
    """Yield a line with the unit of time, its ratio to the unit in `compare`, and assumed costs of other backwards."""
    stages, ranks = instance.placement.stages, instance.placement.ranks
    other = "" if stages == ranks else f"; in `pipesched compare` a stage takes {Fraction(ranks, stages)} of them"
    guessed = instance.costs.assumed_of({*"FIWB"} - {*instance.kinds})
    if guessed and any(row.orders is None for row in known):
        other += f"; assumed for other kinds of backward: {equations(guessed, instance.costs)}"
    if not instance.costs.unit:
        yield f"    unit of time: costs of one of {stages} stages{other}"
    elif other:
        yield f"    the times are for one of {stages} stages{other}"


def relevant(placement: Placement, *, special: bool = False) -> list[str]:
    """Return the names of the library's schedules that, according to the manifest, have this placement at some size.

    special: whether to include schedules with operations that the search cannot order.
    """
    wanted, found = placement_name(placement), list[str]()
    for line in MANIFEST.read_text("utf-8").splitlines()[1:]:
        name, _, places = line.split(" | ")
        if wanted in places.split() or (special if places == "none" else placement.ranks == 1):
            found.append(name)
    return found
