"""For every number of microbatches m0 + jK, from one schedule of m0.

    {"microbatches": m0, "step": K, "value": 27, "growth": "3/2", "seam": 30, "starts": [[0, 1, …], …],
     "bound": {…}}                       growth: of the objective with each microbatch, so P = K growth

Let n_q(t) be how many operations of line q have started by t, and A no less than any duration, with its message. If

    n_q(t + P) = n_q(t) + K      for every q and all t in seam - A - 1 .. seam - 1

then n'(t) = n(t) up to seam - 1 + P, and n(t - P) + K from seam - A - 1 + P on: the two agree where both are said.
Every constraint compares counters at most A apart, so it lies in one of the parts, where the schedule keeps it; what
is held is a sum of counters that grow alike. n' repeats at seam + P again. So there is a schedule for each m0 + jK,
it ends jP later, and its order on a rank is u s^j v: u has started before seam + P, s since the seam, uv is that of m0.

The file has this order for each j if it has it for 0, 1 and 2. Its program spells x b^j y from some j on (`copies`), so
x b y = u s v. With x = u z, or the other way round, bz = zs, and so b^j z = z s^j.

None is shorter if the bound at m0 is the objective, and grows by P too. Heads of a line, and its tails from the end,
are the same for every m. So the bound of a set of operations that has some of each line of its rank grows by the
rank's work; one of a rank's ends too, once all of its lines begin after the head and end before the tail; and a
longest path that leads from an operation to the K-th after it grows by what lies between. Whatever else shows the value
at m0, be it a proof, grows by P where K microbatches are a period apart: `optimum_apart`.

    "proof"         where no bound is the value: that nothing at m0 is below it, as in what is refuted
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from pipesched.analysis.dependencies import Dependencies
from pipesched.check.optimum_apart import apart
from pipesched.check.optimum_bound import Bound, fault
from pipesched.check.optimum_certificate import Entries, Unreadable
from pipesched.check.optimum_paths import Facts, between, heads, tails
from pipesched.model.columns import Ints
from pipesched.model.costs import Ticks
from pipesched.model.numbers import plain
from pipesched.model.schedule import Schedule

Copies: TypeAlias = Callable[[int, int], Sequence[Schedule]]
"""(m0, K): the schedules of m0, m0 + K and m0 + 2K, where each K more put the same letters into a rank's program."""


@dataclass(frozen=True)
class Every:
    """What a certificate says. value, growth: in the unit of time; objective (the value), seam, period, starts: in
    ticks, starts by rank in the order of the schedule of m0. bound: at m0; None where it is said to be optimal for one
    m alone.
    """

    microbatches: int
    step: int
    value: Fraction
    growth: Fraction
    objective: int
    seam: int
    period: int
    starts: list[list[int]]
    bound: Bound | None
    proof: Entries | None

    @classmethod
    def read(cls, given: Entries) -> Every:
        given.only("microbatches", "step", "value", "growth", "seam", "starts", "bound", "proof")
        first, step, growth = given.whole("microbatches"), given.whole("step"), given.time("growth")
        period = Entries({"period": plain(growth * step)}, given.scale).ticks("period")
        if first < 1 or step < 1 or period < 1:
            raise Unreadable("no period follows from its step and growth")
        bound = given.bound("bound") if "bound" in given else None
        proof = given.part("proof") if "proof" in given else None
        value, seam = given.ticks("value"), given.ticks("seam")
        return cls(first, step, given.time("value"), growth, value, seam, period, given.table("starts"), bound, proof)

    def reaches(self, microbatches: int) -> bool:
        copies, rest = divmod(microbatches - self.microbatches, self.step)
        return copies >= 0 and not rest

    def apart(self, facts: Facts, *, span: bool) -> bool:
        """Whether K microbatches are a period apart, so that what shows the value at m0 grows with it."""
        return not span and apart(facts, self.step) >= self.period

    def grows(self, facts: Facts, *, span: bool) -> bool:
        """Whether the bound is the value, and grows with it; facts: at m0."""
        bound = self.bound
        if bound is None or bound.value != self.objective or fault(facts, bound, span=span):
            return False
        if self.apart(facts, span=span):
            return True
        frame = bound.counted(span=span)
        if bound.kind == "path":
            return _repeats(facts, frame, self)
        mine, head, tail = facts.on(bound.rank), heads(facts, frame), tails(facts, frame)
        if bound.kind == "one-machine":
            mine = [line for line, _, _ in bound.operations]
        elif any(head[line][-1] < bound.head or tail[line][0] < bound.tail for line in mine):
            return False
        return self.step * sum(facts.work[line] for line in mine) >= self.period


def _repeats(facts: Facts, frame: int | None, every: Every) -> bool:
    """Whether a longest path leads from an operation to the K-th after it, and takes a period for that."""
    head, tail = heads(facts, frame), tails(facts, frame)
    for line in facts.rank:
        for i in range(facts.length[line] - every.step):
            if head[line][i] + every.period + facts.work[line] + tail[line][i + every.step] >= every.objective:
                return between(facts, line, i, every.step) >= every.period
    return False


def every_fault(every: Every, schedule: Schedule, dependencies: Dependencies, ticks: Ticks, *, span: bool) -> str:
    """What is wrong with the starts as those of the schedule of m0, or with the part that repeats."""
    if schedule.placement.routes > 1:
        return "two routes share the microbatches"
    if [len(times) for times in every.starts] != np.diff(schedule.start).tolist():
        return "its starts are not those of its operations"
    start = np.array([x for times in every.starts for x in times], dtype=np.int64)
    work = ticks.compute[schedule.op, schedule.stage]
    at = np.flatnonzero(dependencies.producer >= 0)
    late = np.where(dependencies.crosses, ticks.message[schedule.stage[dependencies.producer]], 0)
    follows = np.flatnonzero(schedule.rank[1:] == schedule.rank[:-1])
    if bool((start < 0).any() or (start[follows + 1] < (start + work)[follows]).any()):
        return "two of its operations run at once"
    if bool((start[at] < ((start + work)[dependencies.producer] + late)[at]).any()):
        return "one of its operations starts before its input is there"
    if _objective(schedule, start, start + work, span=span) > every.objective:
        return "its starts take more time"
    reach = int(work.max()) + int(ticks.message.max())
    return _unrepeated(every, schedule, start, reach)


def _cuts(schedule: Schedule) -> list[tuple[int, int]]:
    """Where the list of each rank begins and ends."""
    return list(pairwise(schedule.start.tolist()))


def _objective(schedule: Schedule, start: Ints, end: Ints, *, span: bool) -> int:
    if not span:
        return int(end.max())
    return max(int(end[high - 1] - start[low]) for low, high in _cuts(schedule) if high > low)


def _unrepeated(every: Every, schedule: Schedule, start: Ints, reach: int) -> str:
    """n(t + P) = n(t) + K at the first t, and between it and the last one the same starts, P later."""
    first, last = every.seam - reach - 1, every.seam - 1
    word = _word(schedule)
    for line in (np.sort(start[word == letter]) for letter in np.unique(word)):
        now, then = (np.searchsorted(line, (x, x + every.period), side="right") for x in (first, last))
        same = np.array_equal(line[now[0] : then[0]] + every.period, line[now[1] : then[1]])
        if now[1] != now[0] + every.step or not same:
            return "no part of it repeats at its seam"
    return ""


def uncopied(every: Every, sizes: Sequence[Schedule]) -> str:
    """What is wrong with the orders of m0, m0 + K and m0 + 2K microbatches as u s^j v."""
    own = sizes[0]
    for rank, times in enumerate(every.starts):
        word, low, high = _word(own, rank), *np.searchsorted(times, (every.seam, every.seam + every.period))
        for copies, longer in enumerate(sizes):
            right = np.concatenate([word[:high], np.tile(word[low:high], copies), word[high:]])
            if not np.array_equal(_word(longer, rank), right):
                return f"at m={longer.microbatches} the order of rank {rank} has no copy of what repeats"
    return ""


def _word(schedule: Schedule, rank: int | None = None) -> Ints:
    """The letters of an order: kinds of operations, and their stages."""
    own = slice(None) if rank is None else slice(*_cuts(schedule)[rank])
    return schedule.op[own].astype(np.int64) * schedule.stages + schedule.stage[own]
