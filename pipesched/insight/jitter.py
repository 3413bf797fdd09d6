"""Compute the makespans of an order with random times, and the slack of its messages.

The time of each operation and each message is its cost times a factor of its own, drawn from a normal distribution
around 1 with the requested standard deviation, cut off at 0. Messages do not queue for links. Both parts of an overlap
pair share one factor. The draws are reproducible: in a draw the F of stage 2 and microbatch 5 has the same factor in
every schedule of any size, so that schedules are compared under equal conditions.

The order of every rank is fixed, or an order by a rule is decided again in each draw, with the times of that draw.

    draw          0    1    2   ...
    F0.0         1.02 0.97 1.05
    F0.1         0.99 1.01 0.93

All draws of an operation form a row, so a level of operations, which wait only for earlier levels, takes one sum and
one maximum of rows. The slack of a message is the longest delay of this message alone that does not increase the
makespan: the makespan minus the longest path to the message and the longest path from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import ceil
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipesched.analysis.copies import Copies
from pipesched.analysis.lists import Lists, run, run_events, run_rounds
from pipesched.analysis.timeline import entries
from pipesched.diagnostics import Code, fail
from pipesched.examine import Examination
from pipesched.language.evaluate import at_size
from pipesched.model.columns import Column, Ints, fresh
from pipesched.model.costs import Costs
from pipesched.model.grid import reduced
from pipesched.model.numbers import exact, percent
from pipesched.model.ops import COMPUTES, Op
from pipesched.model.schedule import Schedule
from pipesched.model.units import Unit
from pipesched.report.parts import Part
from pipesched.schedule_analysis import Analysis
from pipesched.support.record import Record

DRAWS = 1000
MOST = 16_000_000  # most slots of all draws together
MOST_BY_RULE = 200_000  # most operations that are decided in all draws together
BLOCK = 100  # draws that are made at a time
_FINER = 1000  # ticks of the draws in a tick of the costs
_WIDEST = 2**61
_SHOWN = 6  # most links between ranks that are named
_MESSAGES, _STAGES = 32, 1 << 20  # above the number of kinds, and of stages

Rule: TypeAlias = Callable[[Costs], Schedule]
Factors: TypeAlias = NDArray[np.float64]  # shape (operations or messages, draws)


@dataclass(frozen=True)
class Jittered:
    """The options for jitter. jitter: the standard deviation of every time, as a fraction of its mean. rule: whether an
    order by a rule is decided again in each draw.
    """

    jitter: Fraction | None = None
    rule: bool = False

    def __post_init__(self) -> None:
        """Raises PipeschedError: PS225 for a rule without jitter."""
        if self.rule and self.jitter is None:
            raise fail(
                Code.USAGE, "--rule decides the order again in each draw, so it needs --jitter", help=_DRAWS_HELP
            )


_DRAWS_HELP = "give --jitter 5% too"


@dataclass(frozen=True)
class Jitter(Part):
    """The makespan with random times. share: the standard deviation of a time, as a fraction of its mean. p50, p95: the
    smallest makespans that 50 % and 95 % of the draws do not exceed. messages, tight: the number of messages, and of
    messages without slack. slack: for each sender and receiver, the least slack of their messages. free: whether
    messages take no time. rule: whether the order is decided again in each draw.
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
    free: bool = False
    rule: bool = False

    @property
    def assumed(self) -> tuple[str, ...]:
        """The distribution of times, and the effects that the draws omit."""
        varied = f"the factors are normal with standard deviation {percent(self.share)}, cut off at 0"
        messages = "messages do not queue" + ", and take no time because C = 0" * self.free
        by_rule = ("the rule decides with these times, but with the mean times of messages",) if self.rule else ()
        said = (
            "the time of each operation and message is its cost times a random factor of its own",
            varied,
            messages,
            *by_rule,
        )
        return (f"jitter: {'; '.join(said)}",)

    def lines(self) -> list[str]:
        """Return both quantiles, the number of messages without slack, and the least slack of links."""
        median, most = near(self.p50, self.unit), near(self.p95, self.unit)
        how = ", with the order decided again in each draw" if self.rule else ""
        lines = [
            f"jitter {percent(self.share)}: makespan at most {median} in half of {self.draws:,} draws, at most {most} "
            f"in 95 %{how}"
        ]
        if self.messages:
            links = sorted((link for link in self.slack if link[2]), key=lambda link: link[2])
            named = ", ".join(f"{a} to {b} {self.unit.text(slack)}" for a, b, slack in links[:_SHOWN])
            more = f" and {len(links) - _SHOWN} more links" if len(links) > _SHOWN else ""
            where = f"; least slack between ranks: {named}{more}" if links else ""
            lines.append(f"without jitter {self.tight} of {self.messages} messages have no slack{where}")
        return lines

    def short(self) -> list[str]:
        """Return the quantiles."""
        return [f"p50 {near(self.p50, self.unit)}   p95 {near(self.p95, self.unit)}"]

    def to_json(self) -> dict[str, object]:
        """Return the times in the same form as in the rest of the report."""
        links = [{"from": a, "to": b, **exact(slack=slack)} for a, b, slack in self.slack]
        times = exact(p50=self.p50, p95=self.p95)
        said = {"share": str(self.share), "draws": self.draws, **times, "tight": self.tight, "slack": links}
        return {**said, **({"by_rule": True} if self.rule else {})}


def near(value: Fraction, unit: Unit) -> str:
    """Format a drawn time, which is inexact, with four digits."""
    return unit.text(value) if unit else f"{float(value):.4g}"


def jitter(made: Examination) -> Jitter | None:
    """Return the quantiles and the slack of an order; None if the order deadlocks."""
    asked, found = made.options.of(Jittered), made.analysis
    if asked.jitter is None or not found.finished or not len(found.schedule):
        return None
    rule = _rule(made) if asked.rule else None
    ends, finer = makespans(found, float(asked.jitter), rule=rule)
    p50, p95 = _quantiles(ends, found.ticks.scale * finer)
    messages, room = found.dependencies.messages(), slack(found)
    of = [found.schedule.rank[x].astype(np.int64) for x in (messages.producer, messages.consumer)]
    link = of[0] * found.schedule.ranks + of[1]
    least = np.full(found.schedule.ranks**2, np.iinfo(np.int64).max)
    np.minimum.at(least, link, room)
    links = ((*divmod(int(x), found.schedule.ranks), found.time(least[x])) for x in np.unique(link))
    return Jitter(
        asked.jitter,
        len(ends),
        p50,
        p95,
        messages=len(room),
        tight=int(np.count_nonzero(room == 0)),
        slack=tuple(links),
        unit=found.costs.unit,
        free=not found.ticks.message.any(),
        rule=rule is not None,
    )


def quantiles(made: Analysis, share: Fraction, draws: int) -> tuple[Fraction, Fraction]:
    """Return the median and the 95th percentile of the makespans: the service `quantiles`."""
    ends, finer = makespans(made, float(share), draws)
    return _quantiles(ends, made.ticks.scale * finer)


def _quantiles(ends: Ints, scale: int) -> tuple[Fraction, Fraction]:
    p50, p95 = (Fraction(int(ends[ceil(q * len(ends)) - 1]), scale) for q in (0.5, 0.95))
    return p50, p95


def _rule(made: Examination) -> Rule | None:
    """Return the function that decides a file's order at given costs; None if the order is fixed."""
    unit, most = made.loaded.unit, made.options.max_ops
    if unit is None or not unit.checked.rule:
        return None
    sizes = made.loaded.schedule.parameters
    return lambda costs: at_size(unit.checked, sizes, max_ops=most, deciding=costs).schedule


def makespans(made: Analysis, share: float, draws: int = DRAWS, *, rule: Rule | None = None) -> tuple[Ints, int]:
    """Return the makespan of every draw, in ascending order, and the number of their units per tick. Large orders have
    fewer draws. rule: decides the order at given costs.
    """
    drawn = Drawn(made, share)
    draws = max(min(draws, MOST // drawn.size), 1)
    if rule is not None:
        draws = max(min(draws, MOST_BY_RULE // len(made.schedule)), 1)
    found = []
    for number, first in enumerate(range(0, draws, BLOCK)):
        block = min(BLOCK, draws - first)
        found.append(drawn.ends(number, block) if rule is None else np.array([*decided(drawn, rule, number, block)]))
    return np.sort(np.concatenate(found)), drawn.finer


class Drawn(Record):
    """The draws of an order's times. share: the standard deviation of a time, as a fraction of its mean."""

    made: Analysis
    share: float

    @cached_property
    def entries(self) -> tuple[Ints, Ints, tuple[Column, Column, Ints]]:
        """The costs, lists and waits of the slots and, after them, of the copies to and from the host."""
        return entries(self.made.schedule, self.made.dependencies, self.made.ticks, _copies(self.made))[1:]

    @property
    def size(self) -> int:
        """The number of slots and copies."""
        return len(self.entries[0])

    @cached_property
    def finer(self) -> int:
        """The number of units per tick in which drawn times are counted."""
        longest = int(self.entries[0].sum()) + int(self.entries[2][2].sum())
        return _FINER if longest * _FINER * 8 < _WIDEST else 1

    @cached_property
    def operations(self) -> Ints:
        """The index of the operation of every slot and copy."""
        schedule, copies = self.made.schedule, _copies(self.made)
        head = np.flatnonzero(~schedule.joined)
        return head if copies is None else np.concatenate([head, copies.op])

    @cached_property
    def levels(self) -> Levels:
        """The slots and copies, by level."""
        cost, cut, (consumer, producer, delay) = self.entries
        return Levels.of(Lists.of(cost, cut, (consumer, producer, np.arange(1, len(delay) + 1))))

    def times(self, block: int, draws: int) -> tuple[Ints, Ints]:
        """Return the costs and the delays of a block of draws, shape (slots, draws) and (waits, draws)."""
        cost, _, (_, _, delay) = self.entries
        schedule, messages = self.made.schedule, self.made.dependencies.messages()
        drawn = self.whole(cost, self.factors(schedule, self.operations, block, draws))
        late = np.zeros((len(delay), draws), dtype=np.int64)
        if delay.any():  # of messages: copies, behind them, wait without delay
            factors = self.factors(schedule, messages.consumer, block, draws, schedule.stage[messages.producer])
            late[: len(messages)] = self.whole(delay[: len(messages)], factors)
        return drawn, late

    def whole(self, times: Ints, factors: Factors) -> Ints:
        """Return the drawn times as integers, in units of 1 / `finer` tick."""
        by_row = times.reshape(-1, *[1] * (factors.ndim - 1))
        return np.asarray(np.rint(by_row * factors * self.finer).astype(np.int64))

    def factors(self, schedule: Schedule, at: Column, block: int, draws: int, source: Column | None = None) -> Factors:
        """Return the factors of operations; with `source`, of the messages from these stages to the operations."""
        key, microbatch = _key(schedule, at, source), schedule.microbatch[at]
        order = np.argsort(key, kind="stable")
        made = np.empty((len(key), draws))
        for here in np.split(order, np.flatnonzero(fresh(key[order]))[1:]) if len(key) else ():
            rng, rows = np.random.default_rng([int(key[here[0]]), block]), int(microbatch[here].max()) + 1
            made[here] = rng.normal(1.0, self.share, (rows, BLOCK))[microbatch[here], :draws]
        return np.maximum(made, 0.0, out=made)

    def ends(self, block: int, draws: int) -> Ints:
        """Return the makespans of a block of draws."""
        return self.levels.ends(*self.times(block, draws))


def _key(schedule: Schedule, at: Column, source: Column | None = None) -> Ints:
    """Return a number for each operation's kind and stage; with `source`, for its message from a stage of `source`."""
    kind, stage = (np.asarray(x[at], dtype=np.int64) for x in (schedule.op, schedule.stage))
    kind = kind if source is None else kind + _MESSAGES
    return np.asarray((kind * _STAGES + stage) * _STAGES + (0 if source is None else source))


class Levels(Record):
    """The entries of lists, by level: entries of one level wait only for entries of earlier levels.

    order: the entries by level. cut: the position in `order` at which each level begins, and the number of entries.
    inputs: pairs of columns: for each position, the position of an entry that it waits for, and the number of this
    wait; the first pair is for the entry before it in its list. An entry without such a wait has the number of entries
    as the position, and 0 as the wait. further: for each position with more waits, their positions and numbers.
    """

    order: Ints
    cut: list[int]
    inputs: list[tuple[Ints, Ints | None]]
    further: dict[int, list[tuple[int, int]]]

    @classmethod
    def of(cls, lists: Lists) -> Levels:
        """Return the levels of lists whose delays are the numbers of waits."""
        size = len(lists.cost)
        _, turn, _ = run_events(lists) if len(lists.further[0]) else run_rounds(lists)
        order = np.argsort(turn, kind="stable")
        place = np.empty(size + 1, dtype=np.int64)
        place[order], place[size] = np.arange(size), size
        before = np.arange(-1, size - 1)
        before[lists.cut[:-1][lists.cut[:-1] < lists.cut[1:]]] = size
        inputs: list[tuple[Ints, Ints | None]] = [(place[before[order]], None)]
        inputs += [(place[need[order]], None if number is None else number[order]) for need, number in lists.inputs]
        further: dict[int, list[tuple[int, int]]] = {}
        for entry, producer, number in zip(*(column.tolist() for column in lists.further), strict=True):
            further.setdefault(int(place[entry]), []).append((int(place[producer]), number))
        return cls(order, [*np.flatnonzero(fresh(turn[order])).tolist(), size], inputs, further)

    def ends(self, cost: Ints, delay: Ints) -> Ints:
        """Return the makespan of each draw. cost: one row of draws per entry. delay: one row of draws per wait."""
        draws = cost.shape[1]
        end, late = np.zeros((len(self.order) + 1, draws), dtype=np.int64), delay.any()
        delay = np.concatenate([np.zeros((1, draws), dtype=np.int64), delay])
        cost = cost[self.order]
        for low, high in zip(self.cut, self.cut[1:], strict=False):
            begin = end[self.inputs[0][0][low:high]]
            for need, number in self.inputs[1:]:
                arrival = end[need[low:high]]
                if late and number is not None:
                    arrival += delay[number[low:high]]
                np.maximum(begin, arrival, out=begin)
            for place in range(low, high) if self.further else ():
                for producer, wait in self.further.get(place, ()):
                    np.maximum(begin[place - low], end[producer] + delay[wait], out=begin[place - low])
            np.add(begin, cost[low:high], out=end[low:high])
        return np.asarray(end.max(axis=0))


def decided(drawn: Drawn, rule: Rule, block: int, draws: int) -> Iterator[int]:
    """Yield the makespan of each draw of a block, with the order that the rule decides at the draw's times."""
    given, schedule = drawn.made, drawn.made.schedule
    cells = np.arange(schedule.stages * schedule.microbatches)
    stage, microbatch = np.divmod(cells, schedule.microbatches)
    factors, grids = {}, dict[str, Ints]()
    for op in [op for op in COMPUTES if schedule.counts[op]]:
        alike = replace(schedule, op=np.full(len(cells), op), stage=stage, microbatch=microbatch)
        factors[op] = drawn.factors(alike, cells, block, draws)
        grids[op.name] = drawn.whole(given.ticks.durations(alike.op, stage, microbatch), factors[op])
    for pair in [pair for pair in given.ticks.pair if Op[pair[0]] in factors]:
        grids[pair] = drawn.whole(given.ticks.pairs(pair, stage, microbatch), factors[Op[pair[0]]])
    messages = given.dependencies.messages()
    source = schedule.stage[messages.producer]
    late = drawn.factors(schedule, messages.consumer, block, draws, source)
    known = _key(schedule, messages.consumer, source) * schedule.microbatches + schedule.microbatch[messages.consumer]
    by_key = np.argsort(known)
    kept = {key: given.costs.given[key] for key in ("C", "M", "K") if key in given.costs.given}
    for draw in range(draws):
        scale, shape = given.ticks.scale * drawn.finer, (schedule.stages, schedule.microbatches)
        costs = Costs({**kept, **{key: reduced(times[:, draw].reshape(shape), scale) for key, times in grids.items()}})
        one = Drawn(replace(given, schedule=rule(costs)), drawn.share)
        cost, cut, (consumer, producer, delay) = one.entries
        order, at = one.made.schedule, one.operations
        own = np.array([factors[Op(op)][key, draw] for op, key in zip(order.op[at], order.key(at), strict=True)])
        found = one.made.dependencies.messages()
        key = _key(order, found.consumer, order.stage[found.producer]) * order.microbatches
        which = by_key[np.searchsorted(known[by_key], key + order.microbatch[found.consumer])]
        delay = drawn.whole(delay, late[which, draw])
        end, _, _ = run(Lists.of(drawn.whole(cost, own), cut, (consumer, producer, delay)))
        yield int(end.max())


def _copies(made: Analysis) -> Copies | None:
    return Copies.of(made.schedule, made.dependencies)


def slack(made: Analysis) -> Ints:
    """Return, for each message, the longest delay in ticks that does not increase the makespan."""
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
