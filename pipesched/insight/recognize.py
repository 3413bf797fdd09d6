"""Which published order this is: the schedules of the library that have its placement are compared at its sizes.

zb_h1, exactly           zb_h1 but for the order of W           1f1b with every backward split in two
zb_h1, but for steps 5 to 9 of rank 2

Where two are the same order it is the one with fewer parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from pipesched.insight.likeness import READINGS, Likeness, likeness
from pipesched.model.sameness import same_place
from pipesched.model.schedule import Schedule
from pipesched.support.source import Source
from pipesched.verbs.library import plainest, sized

LEAST = Fraction(3, 4)  # with less in common than this an order is another one


@dataclass(frozen=True)
class Known:
    """A library schedule and how much the order has of it."""

    name: str
    like: Likeness


def recognize(schedule: Schedule, source: Source | None = None) -> Known | None:
    """The library schedule that is most like this one, if at least three quarters of both are at the same places.

    source: the file that it was written out from; of a file of the library that is not done again.
    """
    best = None
    for name, known in known_orders(schedule, source):
        if (like := likeness(schedule, known)) is None:
            continue
        if like.whole and like.reading == READINGS[0]:
            return Known(name, like)
        if best is None or _closeness(like) > _closeness(best.like):
            best = Known(name, like)
    return best if best is not None and (best.like.whole or best.like.common >= LEAST) else None


def _closeness(like: Likeness) -> tuple[bool, int, Fraction]:
    """Equal orders first, the strict reading before the lax ones, then by what they have in common."""
    return like.whole, -READINGS.index(like.reading), like.common


def known_orders(schedule: Schedule, own: Source | None = None) -> Iterator[tuple[str, Schedule]]:
    """Every library schedule that has the placement of this one at its sizes; its stages frozen."""
    p, m = schedule.ranks, schedule.microbatches
    if schedule.stages % p:
        return
    sizes = {"p": p, "m": m, "v": schedule.stages // p}
    for name, source in plainest():
        same = partial(same_place, schedule.placement)
        alike = Source(source.name, source.text + "".join(f"frozen {stage}\n" for stage in schedule.placement.frozen))
        known = schedule if source == own else sized(alike, sizes, placed=same)
        if known is not None:
            yield name, known
