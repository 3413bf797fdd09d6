"""When every operation starts and ends.

A rank runs its slots in order, one at a time. A slot starts when the slot before it has ended and its inputs are
there; an input from another rank is there tC after its producer's end. Sends are asynchronous here, whatever the
communication model of the deadlock check. An overlap pair starts when both inputs are there, and ends as one.

    end = cost + max(end of the slot before, end of each producer + tC if it is on another rank)

A run in which ranks wait for each other stops there; what stopped is part of the answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipesched.analysis.waits import Waits
from pipesched.diagnostics import Code, fail
from pipesched.model.columns import Ints
from pipesched.model.costs import Ticks
from pipesched.model.ops import Op
from pipesched.model.schedule import Schedule


@dataclass(frozen=True, eq=False)
class Timeline:
    """start, end: in ticks, shape (operations,), the same for both parts of a pair; -1 for what never runs.

    turn: a topological order, the turn in which each operation ran. stuck: per rank the operation that never runs,
    or -1.
    """

    start: Ints
    end: Ints
    turn: Ints
    stuck: tuple[int, ...]

    @property
    def finished(self) -> bool:
        return all(i < 0 for i in self.stuck)

    @property
    def makespan(self) -> int:
        """In ticks."""
        return int(self.end.max(initial=0))


def slot_costs(schedule: Schedule, ticks: Ticks) -> Ints:
    """The cost of every slot in ticks, at its first operation; 0 at second parts.

    Raises:
        PipeschedError: PS222, costs so large that times leave 64 bits.
    """
    stage = np.clip(schedule.stage, 0, schedule.stages - 1)
    cost = ticks.compute[schedule.op, stage]
    second = np.flatnonzero(schedule.second)
    if len(second):
        pair = cost[second - 1] + cost[second]
        if ticks.pair is not None:
            pair = np.where(schedule.op[second] == Op.B, ticks.pair[stage[second - 1]], pair)
        cost[second - 1], cost[second] = pair, 0
    if float(cost.sum(dtype=np.float64)) + float(ticks.message.max(initial=0)) * len(schedule) >= 2.0**62:
        raise fail(Code.COSTS, "the times leave 64 bits", help="use a larger unit of time")
    return np.asarray(cost, dtype=np.int64)


def timeline(schedule: Schedule, waits: Waits, ticks: Ticks) -> Timeline:
    """Run the schedule once, greedily; O(operations)."""
    head = np.flatnonzero(~schedule.second)
    cost = slot_costs(schedule, ticks)[head].tolist()
    slot = np.cumsum(~schedule.second) - 1
    crossing = np.where(waits.crosses, waits.needs, -1)
    delay = np.where(crossing >= 0, ticks.message[np.clip(schedule.stage[crossing], 0, schedule.stages - 1)], 0)
    need = np.where(crossing >= 0, slot[crossing], -1)
    paired = np.zeros(len(head), dtype=np.bool_)
    paired[slot[schedule.second]] = True
    other = np.minimum(head + 1, max(len(schedule) - 1, 0))
    need_other = np.where(paired, need[other], -1).tolist() if len(head) else []
    cut = np.searchsorted(head, schedule.start)
    starts, ends, turns, at = _run(
        cost,
        need[head].tolist(),
        delay[head].tolist(),
        need_other,
        delay[other].tolist() if len(head) else [],
        cut.tolist(),
    )
    stuck = tuple(int(head[i]) if i < high else -1 for i, high in zip(at, cut[1:].tolist(), strict=True))
    spread = slot if len(head) else head
    return Timeline(_column(starts)[spread], _column(ends)[spread], _column(turns)[spread], stuck)


def _column(values: list[int]) -> Ints:
    return np.array(values, dtype=np.int64)


def _run(
    cost: list[int], need: list[int], delay: list[int], need_other: list[int], delay_other: list[int], cut: list[int]
) -> tuple[list[int], list[int], list[int], list[int]]:
    """The event loop over slots: each rank runs until it waits, and is woken by the slot it waits for."""
    size, ranks = len(cost), len(cut) - 1
    start, end, turn = [-1] * size, [-1] * size, [-1] * size
    at, clock = cut[:-1], [0] * ranks
    waiting: dict[int, list[int]] = {}
    ready = list(range(ranks - 1, -1, -1))
    turns = 0
    while ready:
        rank = ready.pop()
        i, now, last = at[rank], clock[rank], cut[rank + 1]
        while i < last:
            begin = now
            producer = need[i]
            if producer >= 0:
                arrival = end[producer]
                if arrival < 0:
                    waiting.setdefault(producer, []).append(rank)
                    break
                begin = max(begin, arrival + delay[i])
            producer = need_other[i]
            if producer >= 0:
                arrival = end[producer]
                if arrival < 0:
                    waiting.setdefault(producer, []).append(rank)
                    break
                begin = max(begin, arrival + delay_other[i])
            start[i] = begin
            end[i] = now = begin + cost[i]
            turn[i] = turns
            turns += 1
            if i in waiting:
                ready += waiting.pop(i)
            i += 1
        at[rank], clock[rank] = i, now
    return start, end, turn, at
