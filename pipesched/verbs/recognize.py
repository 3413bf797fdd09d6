"""Which published order this is: every schedule of the library is written out at the same sizes and compared.

zb_h1, exactly           zb_h1 but for the order of W           1f1b with every backward split in two
zb_h1, but for steps 5 to 9 of rank 2
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from pipesched.analysis.likeness import READINGS, Likeness, likeness
from pipesched.compile import load, read
from pipesched.diagnostics import PipeschedError
from pipesched.examine import Options
from pipesched.inputs import built_in
from pipesched.model.schedule import Schedule
from pipesched.source import Source
from pipesched.verbs.variants import VARIANTS

LEAST = Fraction(3, 4)  # with less in common than this an order is another one


@dataclass(frozen=True)
class Known:
    """A library schedule and how much the order has of it."""

    name: str
    like: Likeness


def recognize(schedule: Schedule) -> Known | None:
    """The library schedule that is most like this one, if at least three quarters of both stand at the same places."""
    found = [Known(name, like) for name, known in known_orders(schedule) if (like := likeness(schedule, known))]
    best = max(found, key=_rank, default=None)
    return best if best is not None and (best.like.whole or best.like.common >= LEAST) else None


def _rank(known: Known) -> tuple[bool, int, Fraction]:
    """Equal orders first, the strict reading before the lax ones, then by what they have in common."""
    return known.like.whole, -READINGS.index(known.like.reading), known.like.common


def known_orders(schedule: Schedule) -> Iterator[tuple[str, Schedule]]:
    """Every library schedule at the sizes of this one, where it takes them, then the variants."""
    p, m = schedule.ranks, schedule.microbatches
    if schedule.stages % p:
        return
    sources = {**{name: read(name) for name in built_in()}, **{x: Source(f"<{x}>", y) for x, y in VARIANTS.items()}}
    for name, source in sources.items():
        for parameters in ({"p": p, "m": m, "v": schedule.stages // p}, {"p": p, "m": m}):
            known = _sized(source, parameters)
            if known is not None:
                yield name, known
                break


def _sized(source: Source, parameters: dict[str, int]) -> Schedule | None:
    try:
        return load(source, Options(parameters, microbatches=parameters["m"])).schedule
    except PipeschedError:
        return None
