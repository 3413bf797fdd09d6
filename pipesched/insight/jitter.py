"""Makespans of an order with varying times, and the slack of its messages.

Each operation and each message takes its cost times a factor of its own, drawn from a normal distribution around 1 with
the requested standard deviation; none is below 0. The order of every rank is fixed. All draws run side by side, as
additional ranks of the same lists, and the same draws are made each time.

The slack of a message is the time by which it alone may arrive later without a later end: the makespan less the longest
path to the message and the longest path from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

import numpy as np

from pipesched.analysis.copies import Copies
from pipesched.analysis.lists import Lists, Waits, run, run_rounds
from pipesched.analysis.timeline import entries
from pipesched.command.values import Not
from pipesched.examine import Examination
from pipesched.model.columns import Ints
from pipesched.model.numbers import exact, percent
from pipesched.model.units import Unit
from pipesched.report.parts import Part
from pipesched.schedule_analysis import Analysis

DRAWS = 1000
MOST = 16_000_000  # most slots of all draws together
_AT_ONCE = 1 << 20  # slots that run side by side
_FINER = 1000  # ticks of the draws in a tick of the costs
_WIDEST = 2**61
_SHOWN = 6  # most links between ranks that are named


@dataclass(frozen=True)
class Jittered:
    """The option for jitter. jitter: the standard deviation of every time, as a share of it."""

    jitter: Fraction | None = None


@dataclass(frozen=True)
class Jitter(Part):
    """The makespan with varying times. share: the standard deviation of a time. p50, p95: the least makespan that so
    many per cent of the draws do not exceed. messages, tight: the number of messages, and of those without slack.
    slack: by sender and receiver, the least of their messages.
    """

    key = "jitter"

    share: Fraction
    draws: int
    p50: Fraction
    p95: Fraction
    messages: int
    tight: int
    slack: tuple[tuple[int, int, Fraction], ...]
    unit: Unit

    @property
    def assumed(self) -> tuple[str, ...]:
        """The assumption on how times vary."""
        varied = f"normal, standard deviation {percent(self.share)}"
        return (f"jitter: each operation and message takes its cost times a factor of its own, {varied}",)

    def lines(self) -> list[str]:
        """Return both quantiles, the number of messages without slack, and the slack of the links."""
        median, most = _near(self.p50, self.unit), _near(self.p95, self.unit)
        lines = [f"jitter {percent(self.share)}: makespan {median} in half of {self.draws:,} draws, {most} in 95 %"]
        if self.messages:
            links = sorted((link for link in self.slack if link[2]), key=lambda link: link[2])
            named = ", ".join(f"{a} to {b} {self.unit.text(slack)}" for a, b, slack in links[:_SHOWN])
            more = f" and {len(links) - _SHOWN} links more" if len(links) > _SHOWN else ""
            where = f"; least slack between ranks: {named}{more}" if links else ""
            lines.append(f"without jitter {self.tight} of {self.messages} messages have no slack{where}")
        return lines

    def short(self) -> list[str]:
        """Return the quantiles."""
        return [f"p50 {_near(self.p50, self.unit)}   p95 {_near(self.p95, self.unit)}"]

    def to_json(self) -> dict[str, object]:
        """Return the times as in the rest of the report."""
        links = [{"from": a, "to": b, **exact(slack=slack)} for a, b, slack in self.slack]
        times = exact(p50=self.p50, p95=self.p95)
        return {"share": str(self.share), "draws": self.draws, **times, "tight": self.tight, "slack": links}


def _near(value: Fraction, unit: Unit) -> str:
    """Format a drawn time, which is inexact, with four digits."""
    return unit.text(value) if unit else f"{float(value):.4g}"


def jitter(made: Examination) -> Jitter | None:
    """Return the makespans of draws; None for an order that never ends."""
    share, found = made.options.of(Jittered).jitter, made.analysis
    if share is None or not found.finished or not len(found.schedule):
        return None
    ends, finer = makespans(found, float(share))
    p50, p95 = (Fraction(int(ends[ceil(q * len(ends)) - 1]), found.ticks.scale * finer) for q in (0.5, 0.95))
    messages, room = found.dependencies.messages(), slack(found)
    of = [found.schedule.rank[x].astype(np.int64) for x in (messages.producer, messages.consumer)]
    link = of[0] * found.schedule.ranks + of[1]
    least = np.full(found.schedule.ranks**2, np.iinfo(np.int64).max)
    np.minimum.at(least, link, room)
    links = ((*divmod(int(x), found.schedule.ranks), found.time(least[x])) for x in np.unique(link))
    tight = int(np.count_nonzero(room == 0))
    return Jitter(
        share,
        len(ends),
        p50,
        p95,
        messages=len(room),
        tight=tight,
        slack=tuple(links),
        unit=found.costs.unit,
    )


def makespans(made: Analysis, share: float, draws: int = DRAWS) -> tuple[Ints, int]:
    """Return the makespans of the draws in ascending order, and the parts of a tick in which they are counted; fewer
    draws for an order of more than `MOST` / `draws` slots.
    """
    _, cost, cut, waits = entries(made.schedule, made.dependencies, made.ticks, _copies(made))
    longest = int(cost.sum()) + int(waits[2].sum())
    finer = _FINER if longest * _FINER * 8 < _WIDEST else 1
    draws = max(min(draws, MOST // max(len(cost), 1)), 1)
    found: list[Ints] = []
    rng = np.random.default_rng(0)
    few = max(_AT_ONCE // len(cost), 1)
    for first in range(0, draws, few):
        count = min(few, draws - first)
        times = [_drawn(rng, column, count, share, finer) for column in (cost, waits[2])]
        found.append(_ends(times[0], times[1], cut, waits))
    return np.sort(np.concatenate(found)), finer


def _copies(made: Analysis) -> Copies | None:
    return Copies.of(made.schedule, made.dependencies)


def _drawn(rng: np.random.Generator, times: Ints, draws: int, share: float, finer: int) -> Ints:
    """Return the times of every draw, shape (draws, times)."""
    factor = np.maximum(rng.normal(1.0, share, (draws, len(times))), 0.0)
    return np.rint(times * factor * finer).astype(np.int64)


def _ends(cost: Ints, delay: Ints, cut: Ints, waits: Waits) -> Ints:
    """Return the makespan of each of several draws of the same lists."""
    draws, size = cost.shape
    behind = np.arange(draws, dtype=np.int64)[:, None] * size
    consumer, producer = ((column + behind).ravel() for column in waits[:2])
    cuts = np.append((cut[:-1] + behind).ravel(), draws * size)
    lists = Lists.of(cost.ravel(), cuts, (consumer, producer, delay.ravel()))
    end, _, _ = run(lists) if len(lists.further[0]) else run_rounds(lists)
    return np.asarray(end.reshape(draws, size).max(axis=1))


def slack(made: Analysis) -> Ints:
    """Return, for each message, the ticks by which it may arrive later."""
    schedule, found = made.schedule, made.dependencies.messages()
    slot, cost, cut, (consumer, producer, delay) = entries(schedule, made.dependencies, made.ticks, _copies(made))
    end, _, _ = run(Lists.of(cost, cut, (consumer, producer, delay)))
    last = len(cost) - 1  # reversed in time, so that waiting is reversed
    order = np.argsort(last - producer, kind="stable")
    back = Lists.of(
        cost[::-1], last + 1 - cut[::-1], ((last - producer)[order], (last - consumer)[order], delay[order])
    )
    left = run(back)[0][::-1]  # from the begin of each slot to the end of all
    late = made.ticks.delays(schedule.stage[found.producer], schedule.microbatch[found.producer])
    room: Ints = int(end.max()) - end[slot[found.producer]] - late - left[slot[found.consumer]]
    return room


def deviation(value: object) -> Fraction:
    """Parse a share of a time: ``5%``, ``0.05``."""
    text = str(value).strip()
    try:
        share = Fraction(text.removesuffix("%").rstrip()) / (100 if text.endswith("%") else 1)
    except (ValueError, ZeroDivisionError):
        raise Not(value, "a share, as 5% or 0.05") from None
    if not 0 <= share <= 1:
        raise Not(value, "a share from 0 to 1, as 5%")
    return share
