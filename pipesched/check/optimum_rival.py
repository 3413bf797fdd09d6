"""A quick try for a better schedule: where it succeeds, nothing is to be said of optimal.

    run      of all that can start within the caps, the earliest goes first; of these, that of the least priority
    mirror   backward in time the same rules hold, with inputs and needs exchanged, and what is freed is taken: a run
             there, what ended last first, pushes everything as late as it can be, and the next run pushes it back

Priorities: the starts of the schedule that is called optimal, what has most to come after it, and fixed orders of
kinds. Budgeted in looks at what a rank could start, so the answer is the same on every machine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TypeAlias

from pipesched.check.optimum_paths import Facts, Line, tails

LOOKS = 250_000
ROUNDS = 6

Starts: TypeAlias = Mapping[Line, list[int]]


def rival(facts: Facts, told: Starts, goal: int, *, span: bool, looks: int = LOOKS) -> Starts | None:
    """Starts with which the objective is at most `goal` ticks, if some are found. told: those of the schedule."""
    left, nets = [looks], (_net(facts, back=False), _net(facts, back=True))
    for priority in _priorities(facts, told):
        for turn in range(ROUNDS):
            net = nets[turn % 2]
            found = net.run(priority, left)
            if found is None:
                break
            if net.value(found, span=span) <= goal:
                return _mirrored(facts, found) if turn % 2 else found
            priority = _mirrored(facts, found)
    return None


def _priorities(facts: Facts, told: Starts) -> Iterator[Starts]:
    yield told
    yield {line: [-x for x in times] for line, times in tails(facts).items()}
    for kinds in ("IBFW", "IBWF", "FIBW"):
        yield {line: [kinds.index(line.op.name)] * facts.length[line] for line in facts.rank}


def _mirrored(facts: Facts, starts: Starts) -> Starts:
    """The same in the other direction of time, from 0, microbatches from the last."""
    end = max(times[-1] + facts.work[line] for line, times in starts.items())
    return {line: [end - x - facts.work[line] for x in reversed(times)] for line, times in starts.items()}


def _net(facts: Facts, *, back: bool) -> _Net:
    inputs, outputs = defaultdict(list), defaultdict(list)
    for one, two, message in [(a, b, message) for a, b, offset, message in facts.arcs if not offset]:
        before, after = (two, one) if back else (one, two)
        inputs[after].append((before, facts.work[before] + message))
        outputs[before].append(after)
    gains = {line: -gain if back else gain for line, gain in facts.gains.items()}
    return _Net(facts, gains, inputs, outputs, [facts.on(rank) for rank in range(len(facts.cap))])


@dataclass(frozen=True, eq=False)
class _Net:
    """inputs: with the time from their start; gains: of what the rank holds, at the start; lines: by rank."""

    facts: Facts
    gains: Mapping[Line, int]
    inputs: Mapping[Line, Sequence[tuple[Line, int]]]
    outputs: Mapping[Line, Sequence[Line]]
    lines: Sequence[Sequence[Line]]

    def value(self, starts: Starts, *, span: bool) -> int:
        work = self.facts.work
        first = [min((starts[line][0] for line in mine), default=0) for mine in self.lines]
        last = [max((starts[line][-1] + work[line] for line in mine), default=0) for mine in self.lines]
        return max(b - a for a, b in zip(first, last, strict=True)) if span else max(last) - min(first)

    def run(self, priority: Starts, left: list[int]) -> Starts | None:
        """Starts by priority; None if memory lets nothing go on, or no looks are left."""
        starts: dict[Line, list[int]] = {line: [] for line in self.facts.rank}
        clock, held, look = [0] * len(self.lines), [0] * len(self.lines), [0] * len(self.lines)
        queue: list[tuple[int, int, int, int, Line]] = []
        todo = set(range(len(self.lines)))
        while (todo or queue) and left[0] > 0:
            for rank in sorted(todo):
                look[rank] += 1
                left[0] -= len(self.lines[rank])
                for choice in sorted(self._choices(rank, starts, clock[rank], held[rank], priority))[:1]:
                    heappush(queue, (*choice[:2], rank, look[rank], choice[2]))
            todo = set()
            if queue:
                start, _, rank, when, line = heappop(queue)
                if when == look[rank]:
                    starts[line].append(start)
                    clock[rank], held[rank] = start + self.facts.work[line], held[rank] + self.gains[line]
                    todo = {rank, *(self.facts.rank[x] for x in self.outputs.get(line, ()))}
        return starts if all(len(x) == self.facts.length[line] for line, x in starts.items()) else None

    def _choices(
        self, rank: int, starts: Starts, clock: int, held: int, priority: Starts
    ) -> Iterator[tuple[int, int, Line]]:
        """What the rank can start next: when, its priority, and what it is."""
        cap = self.facts.cap[rank]
        for line in self.lines[rank]:
            i, inputs = len(starts[line]), self.inputs.get(line, ())
            if i == self.facts.length[line] or (cap is not None and held + self.gains[line] > cap):
                continue
            if all(len(starts[x]) > i for x, _ in inputs):
                yield max([clock, *(starts[x][i] + delay for x, delay in inputs)]), priority[line][i], line
