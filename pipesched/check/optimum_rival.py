"""A quick try for a better schedule: where it succeeds, nothing is to be said of optimal.

    run      of all that can start within the caps, the earliest goes first; of these, that of the least priority
    mirror   backward in time the same rules hold, with inputs and needs exchanged, and what is freed is taken: a run
             there, what ended last first, pushes everything as late as it can be, and the next run pushes it back

Priorities: the starts of the schedule that is called optimal, what has most to come after it, and fixed orders of
kinds. Budgeted in looks at what a rank could start, so the answer is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TypeAlias

from pipesched.check.optimum_paths import Facts, Line, tails

LOOKS, LOOKS_EACH = 1_000_000, 9  # in all, and for each operation in one run of one stage a rank
ROUNDS = 6

Starts: TypeAlias = Mapping[Line, list[int]]
Table: TypeAlias = list[list[int]]
"""A number for each operation of each line, lines as in `Facts.rank`."""


def rival(facts: Facts, known: Starts, goal: int, *, span: bool, looks: int = LOOKS) -> Starts | None:
    """Starts with which the objective is at most `goal` ticks, if some are found. known: those of the schedule."""
    if looks < LOOKS_EACH * sum(facts.length.values()):
        return None
    left, nets = [looks], (_net(facts, back=False), _net(facts, back=True))
    for priority in _priorities(facts, known):
        for turn in range(ROUNDS):
            net = nets[turn % 2]
            found = net.run(priority, left)
            if found is None:
                break
            if net.value(found, span=span) <= goal:
                return dict(zip(facts.rank, net.mirrored(found) if turn % 2 else found, strict=True))
            priority = net.mirrored(found)
    return None


def _priorities(facts: Facts, known: Starts) -> Iterator[Table]:
    after = tails(facts)
    yield [known[line] for line in facts.rank]
    yield [[-x for x in after[line]] for line in facts.rank]
    for kinds in ("IBFW", "IBWF", "FIBW"):
        yield [[kinds.index(line.op.name)] * facts.length[line] for line in facts.rank]


def _net(facts: Facts, *, back: bool) -> _Net:
    number = {line: n for n, line in enumerate(facts.rank)}
    inputs: list[list[tuple[int, int]]] = [[] for _ in number]
    outputs: list[list[int]] = [[] for _ in number]
    for one, two, message in [(a, b, message) for a, b, offset, message in facts.arcs if not offset]:
        before, after = (two, one) if back else (one, two)
        inputs[number[after]].append((number[before], facts.work[before] + message))
        outputs[number[before]].append(facts.rank[after])
    mine = [[number[line] for line in facts.on(rank)] for rank in range(len(facts.cap))]
    work, gains = ([of[line] for line in number] for of in (facts.work, facts.gains))
    length = [facts.length[line] for line in number]
    return _Net(mine, length, work, [-x for x in gains] if back else gains, facts.cap, inputs, outputs)


@dataclass(frozen=True, eq=False)
class _Net:
    """Lines by number. mine: those of each rank; gains: of what it holds, at the start; inputs: with the time from
    their start; outputs: the ranks that wait.
    """

    mine: list[list[int]]
    length: list[int]
    work: list[int]
    gains: list[int]
    cap: list[int | None]
    inputs: list[list[tuple[int, int]]]
    outputs: list[list[int]]

    def mirrored(self, starts: Table) -> Table:
        """The same in the other direction of time, from 0, microbatches from the last."""
        end = max(times[-1] + work for times, work in zip(starts, self.work, strict=True))
        return [[end - x - work for x in reversed(times)] for times, work in zip(starts, self.work, strict=True)]

    def value(self, starts: Table, *, span: bool) -> int:
        some = [mine for mine in self.mine if mine]
        first = [min(starts[line][0] for line in mine) for mine in some]
        last = [max(starts[line][-1] + self.work[line] for line in mine) for mine in some]
        return max(b - a for a, b in zip(first, last, strict=True)) if span else max(last) - min(first)

    def run(self, priority: Table, left: list[int]) -> Table | None:
        """Starts by priority; None if memory lets nothing go on, or no looks are left."""
        starts: Table = [[] for _ in self.length]
        clock, held, look = [0] * len(self.mine), [0] * len(self.mine), [0] * len(self.mine)
        queue: list[tuple[int, int, int, int, int]] = []
        todo = set(range(len(self.mine)))
        while (todo or queue) and left[0] > 0:
            for rank in sorted(todo):
                look[rank] += 1
                left[0] -= len(self.mine[rank])
                best = min(self._choices(rank, starts, clock[rank], held[rank], priority), default=None)
                if best is not None:
                    heappush(queue, (best[0], best[1], rank, look[rank], best[2]))
            todo = set()
            if queue:
                start, _, rank, when, line = heappop(queue)
                if when == look[rank]:
                    starts[line].append(start)
                    clock[rank], held[rank] = start + self.work[line], held[rank] + self.gains[line]
                    todo = {rank, *self.outputs[line]}
        return starts if all(len(x) == n for x, n in zip(starts, self.length, strict=True)) else None

    def _choices(
        self, rank: int, starts: Table, clock: int, held: int, priority: Table
    ) -> Iterator[tuple[int, int, int]]:
        """What the rank can start next: when, its priority, and its line."""
        cap = self.cap[rank]
        for line in self.mine[rank]:
            i, begin = len(starts[line]), clock
            if i == self.length[line] or (cap is not None and held + self.gains[line] > cap):
                continue
            for other, delay in self.inputs[line]:
                if len(starts[other]) <= i:
                    break
                begin = max(begin, starts[other][i] + delay)
            else:
                yield begin, priority[line][i], line
