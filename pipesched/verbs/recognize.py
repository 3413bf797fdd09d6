"""Which published order this is: the schedules of the library that have its placement are compared at its sizes.

zb_h1, exactly           zb_h1 but for the order of W           1f1b with every backward split in two
zb_h1, but for steps 5 to 9 of rank 2

So are published orders that are a small step away from one of the library. They are here to be recognized; to be run,
verified and drawn a schedule belongs in ``schedules/``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from pipesched.analysis.likeness import READINGS, Likeness, likeness, same_place
from pipesched.assets import built_in
from pipesched.inputs import read
from pipesched.model.schedule import Schedule
from pipesched.source import Source
from pipesched.verbs.library import sized

LEAST = Fraction(3, 4)  # with less in common than this an order is another one

REVERSED = """\
schedule gpipe_reversed(p, m)
"GPipe as its figure draws it: backwards last microbatch first. Huang et al., NeurIPS 2019, figure 2, arXiv:1811.06965"
stage s in 0 .. p on rank s
rank r {
  repeat m { F }
  for i in 0 .. m { B(m - 1 - i) }
}
"""

EAGER = """\
schedule eager_1f1b(p, m)
"Eager 1F1B: twice the warm-up, so that messages have time. Zhuang et al., MLSys 2023, arXiv:2211.05322"
stage s in 0 .. p on rank s
rank r {
  let warmup = min(2 * (p - 1 - r), m)
  repeat warmup     { F }
  repeat m - warmup { F  B }
  repeat warmup     { B }
}
"""

BREADTH = """\
schedule breadth_first(p, v, m)
"Breadth-first: chunk by chunk all microbatches, and back in reverse. Lamy-Poirier, MLSys 2023, arXiv:2211.05953"
stage s in 0 .. p * v on rank s % p
rank r {
  for c in 0 .. v { repeat m { F[c] } }
  for c in 0 .. v { for i in 0 .. m { B[v - 1 - c](m - 1 - i) } }
}
"""

VARIANTS = {
    "gpipe, backwards last microbatch first": REVERSED,
    "eager 1f1b": EAGER,
    "interleaved, breadth first": BREADTH,
}


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
    """Every library schedule that has the placement of this one at its sizes, then the variants; its stages frozen."""
    p, m = schedule.ranks, schedule.microbatches
    if schedule.stages % p:
        return
    sizes = {"p": p, "m": m, "v": schedule.stages // p}
    for name in (*built_in(), *VARIANTS):
        source = Source(f"<{name}>", VARIANTS[name]) if name in VARIANTS else read(name)
        same = partial(same_place, schedule.placement)
        alike = Source(source.name, source.text + "".join(f"frozen {stage}\n" for stage in schedule.placement.frozen))
        known = schedule if source == own else sized(alike, sizes, placed=same)
        if known is not None:
            yield name, known
