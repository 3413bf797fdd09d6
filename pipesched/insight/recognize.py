"""Recognize published orders by comparing them with library schedules of the same placement and sizes.

An order may be zb_h1 exactly, zb_h1 up to the order of W, 1f1b with split backwards, or zb_h1 except for steps 5 to 9
on rank 2, for example. If two library schedules have the same order, the one with fewer parameters is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from pipesched.common.library import sized
from pipesched.insight.likeness import READINGS, Likeness, likeness
from pipesched.language.grammar import grammar
from pipesched.library.assets import built_in
from pipesched.library.inputs import read
from pipesched.model.schedule import Schedule
from pipesched.optimizer.sameness import same_place
from pipesched.support.source import Source

LEAST = Fraction(3, 4)  # the smallest common share of a recognized order


@dataclass(frozen=True)
class Known:
    """A library schedule, and how similar it is to the order."""

    name: str
    like: Likeness


def recognize(schedule: Schedule, source: Source | None = None) -> Known | None:
    """Return the most similar library schedule, if at least three quarters of both orders are at the same places.

    source: the order's own file, which is skipped.
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
    """Sort key: equal orders first, then the stricter reading, then the larger common share."""
    return like.whole, -READINGS.index(like.reading), like.common


def known_orders(schedule: Schedule, own: Source | None = None) -> Iterator[tuple[str, Schedule]]:
    """Yield every library schedule with this placement at these sizes, with the same frozen stages."""
    p, m = schedule.ranks, schedule.microbatches
    if schedule.stages % p or schedule.steps is not None:
        return  # an order with STEPs inside is not compared
    sizes = {"p": p, "m": m, "v": schedule.stages // p}
    for name, source in plainest():
        same = partial(same_place, schedule.placement)
        alike = Source(source.name, source.text + "".join(f"frozen {stage}\n" for stage in schedule.placement.frozen))
        known = schedule if source == own else sized(alike, sizes, placed=same)
        if known is not None and known.steps is None:
            yield name, known


def plainest() -> list[tuple[str, Source]]:
    """Return the built-in schedules, fewest parameters first: `interleaved` with one chunk equals a simpler one."""
    return sorted(((name, read(name)) for name in built_in()), key=lambda x: _parameters(x[1].text))


def _parameters(text: str) -> int:
    """Return the number of parameters in a file's header: the commas between the first brackets, plus one."""
    depth = count = 0
    for token in grammar().words.read(text):
        depth += (token.kind in ("LPAR", "LSQB")) - (token.kind in ("RPAR", "RSQB"))
        count += token.kind == "COMMA" and depth == 1
        if token.kind == "RPAR" and depth == 0:
            break
    return count + 1
