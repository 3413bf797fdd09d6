"""The point where a run stops for good, the operations that ran before it, and the shortest cycle that stops it.

    rank 0   0F0 0F1 .. 0B0 0F2 | 0SEND_F2     waits until rank 1 reaches 1RECV_F2, queued behind 1SEND_B1
    rank 1   ..  1F0 1B0 1F1 1B1 | 1SEND_B1    waits until rank 0 reaches 0RECV_B1, queued behind 0SEND_F2

All runs of a program under a model stop at the same instructions (`analysis.events`). The cycle may contain hundreds of
messages; only its steps across ranks are shown. If compute orders wait for each other, the run stops under every model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product

import numpy as np

from pipesched.analysis.communication import Model
from pipesched.analysis.cycle import shortest_cycle
from pipesched.analysis.dependencies import Dependencies
from pipesched.analysis.events import Events, consumers, queues
from pipesched.analysis.timeline import Timeline
from pipesched.diagnostics import Code
from pipesched.model.columns import Bools, Ints, among, computes
from pipesched.model.ops import SHAPES, Op
from pipesched.model.schedule import Program, Schedule
from pipesched.support.record import Record, Value

NAMED = 8
"""Largest number of ranks that are named individually."""


class Blocked(Value):
    """A rank that never continues. at: its instruction. step: counted from 1. operation: its index in the schedule, or
    -1.
    """

    rank: int
    at: str
    step: int
    operation: int = -1


class Link(Value):
    """A step of the cycle: a rank is blocked until rank `other` reaches `until`, which is queued behind `behind`.

    needs: the instruction that an operation still needs, such as its receive. direction: direction of the message
    between the two ranks: 1 if `other` receives it, -1 if `other` sends it, 0 for a SYNC. queue: whether a posted
    message is blocked rather than its rank, which may be elsewhere or finished. places: the indices, in the program, of
    the instruction at which the rank waits, of its message, and of `until`.
    """

    blocked: Blocked
    other: int
    until: str
    until_step: int
    direction: int
    needs: str = ""
    behind: str = ""
    behind_step: int = 0
    queue: bool = False
    places: tuple[int, int, int] = (-1, -1, -1)

    @property
    def wait(self) -> str:
        """``waits until rank 1 reaches 1RECV_F2 (step 9), queued behind 1SEND_B1 (step 8)``."""
        if not self.until:
            return "waits"
        behind = f", queued behind {self.behind} (step {self.behind_step})" if self.behind else ""
        return f"waits until rank {self.other} reaches {self.until} (step {self.until_step}){behind}"

    @property
    def ends(self) -> tuple[int, int]:
        """The ranks that send and receive the message."""
        return (self.other, self.blocked.rank) if self.direction < 0 else (self.blocked.rank, self.other)


class Standstill(Record):
    """A run that stops. ran: whether each operation of the schedule ends. blocked: the ranks that never end.

    cycle: the steps of the cycle; empty if a rank waits for a message that no rank sends or receives. model: the name
    of the communication model; empty if the run stops under every model.
    """

    model: str
    ran: Bools
    blocked: tuple[Blocked, ...]
    cycle: tuple[Link, ...]

    @property
    def code(self) -> str:
        """The code of the cycle, if there is one."""
        return str(Code.DEADLOCK if self.model else Code.COMPUTE_CYCLE) if self.cycle else ""

    @property
    def under(self) -> str:
        return f"under {self.model or 'every model'}"

    @property
    def waiting(self) -> tuple[Blocked, ...]:
        """The ranks that wait, or whose queue waits, in rank order; ranks of the cycle are described as in `cycle`."""
        by_rank = {x.rank: x for x in self.blocked}
        by_rank |= {link.blocked.rank: link.blocked for link in reversed(self.cycle)}
        return tuple(by_rank[rank] for rank in sorted(by_rank))

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of the cycle, in its order."""
        return tuple(dict.fromkeys(link.blocked.rank for link in self.cycle))


def together(ranks: Sequence[int]) -> str:
    """Return text that names the ranks of a cycle."""
    if len(set(ranks)) == 1:
        return f"rank {ranks[0]} waits for itself"
    if len(ranks) > NAMED:
        return f"{len(ranks)} ranks wait in a cycle"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]} wait for each other"


def of_program(program: Program, model: Model) -> Standstill | None:
    """Return the point where a program stops under a model, or None if it ends; O(instructions)."""
    events = Events(program, model)
    if all(stop < 0 for stop in events.stops):
        return None
    blocked = (_blocked(program, rank, stop) for rank, stop in enumerate(events.stops) if stop >= 0)
    cycle = _Cycle(events).links()
    if any(program.peer[link.places[1]] == link.blocked.rank for link in cycle):
        cycle = []  # a rank that is its own peer, which is not a cycle
    return Standstill(str(model), events.ran[: len(program)][computes(program.op)], tuple(blocked), tuple(cycle))


def of_orders(schedule: Schedule, dependencies: Dependencies, times: Timeline) -> Standstill:
    """Return the point where compute orders that wait for each other stop, whatever the messages are."""
    blocked = tuple(_at(schedule, index) for index in times.stuck if index >= 0)
    links = tuple(
        Link(_at(schedule, part), int(schedule.rank[producer]), str(schedule[producer]), schedule.step(producer), -1)
        for part, producer in compute_cycle(schedule, dependencies, times)
    )
    return Standstill("", times.start >= 0, blocked, links)


def compute_cycle(schedule: Schedule, dependencies: Dependencies, times: Timeline) -> list[tuple[int, int]]:
    """Return a shortest cycle of ranks: for each, the operation that it cannot run and the producer that it lacks."""
    missing = {rank: _missing(schedule, dependencies, times, i) for rank, i in enumerate(times.stuck) if i >= 0}
    ranks = shortest_cycle(missing, lambda rank: [int(schedule.rank[producer]) for _, producer in missing[rank]])
    lowest = ranks.index(min(ranks)) if ranks else 0
    ranks = ranks[lowest:] + ranks[:lowest]
    return [
        next(pair for pair in missing[rank] if int(schedule.rank[pair[1]]) == other)
        for rank, other in zip(ranks, ranks[1:] + ranks[:1], strict=True)
    ]


def cut(dependencies: Dependencies, ran: Bools) -> Dependencies:
    """Return the dependencies of a stopped run, in which each operation that never ran waits for itself."""
    never = np.flatnonzero(~ran)
    producer, crosses = dependencies.producer.copy(), dependencies.crosses | ~ran
    producer[never] = never
    return replace(dependencies, producer=producer, crosses=crosses)


def _missing(schedule: Schedule, dependencies: Dependencies, times: Timeline, index: int) -> list[tuple[int, int]]:
    """Return (operation, producer) for each input that never arrives at the slot of `index`."""
    parts = [index]
    if index + 1 < len(schedule) and schedule.joined[index + 1]:
        parts.append(index + 1)
    inputs = [(part, int(dependencies.producer[part])) for part in parts if dependencies.crosses[part]]
    also = dependencies.further
    if len(also):
        at = np.flatnonzero(np.isin(also.consumer, parts) & also.crosses)
        inputs += zip(also.consumer[at].tolist(), also.producer[at].tolist(), strict=True)
    return [(part, producer) for part, producer in inputs if times.end[producer] < 0]


def _at(schedule: Schedule, index: int) -> Blocked:
    return Blocked(int(schedule.rank[index]), str(schedule[index]), schedule.step(index), index)


def _blocked(program: Program, rank: int, stop: int) -> Blocked:
    index = int(program.start[rank]) + stop
    if index == int(program.start[rank + 1]):
        return Blocked(rank, "the end of its list", stop)
    compute = computes(program.op[: index + 1])
    operation = int(np.count_nonzero(compute[:index])) if compute[index] else -1
    return Blocked(rank, str(program[index]), stop + 1, operation)


class _Cycle:
    """The cycle of a stopped program, contracted to its steps from rank to rank.

    Nodes are positions of ranks (an instruction, or len(program) + rank at the end of a list) and messages that
    never complete (len(program) + ranks + their first end; under ``buffered`` each end is a node). Nodes from `between`
    on are queued batches.
    """

    def __init__(self, events: Events) -> None:
        self.events, self.program = events, events.program
        self.size, self.ranks = len(self.program), self.program.ranks
        self.between = 2 * self.size + self.ranks
        start = self.program.start.tolist()
        self.standing = [
            -1 if stop < 0 else self.size + r if low + stop >= high else low + stop
            for r, (stop, low, high) in enumerate(zip(events.stops, start[:-1], start[1:], strict=True))
        ]
        sync = self.program.op == Op.SYNC
        ends = np.flatnonzero(self.program.sends | self.program.receives | sync)
        late = ends[~events.over(ends)]
        other = np.where((events.model.kind == "buffered") & ~sync, -1, events.pairing.partner)[late]
        first = self.size + self.ranks + np.where(other < 0, late, np.minimum(late, other))
        node = dict(zip(late.tolist(), first.tolist(), strict=True))
        self._ends: dict[int, list[int]] = {}
        self._needs: dict[int, list[int]] = {}
        for end, own in node.items():
            self._ends.setdefault(own, []).append(end)
            if not events.ran[events.sources[0][end]]:
                self._needs.setdefault(own, []).append(self.standing[int(self.program.rank[end])])
        elements = self._elements()
        over = dict(node)
        for batch, element in enumerate(elements, self.between):
            if len(element) > 1 and (left := [node[end] for end in element if end in node]):
                over |= dict.fromkeys(element, batch)
                self._needs[batch] = left
        for end, before in self._behind(elements):
            if end in node and before in over:
                self._needs.setdefault(node[end], []).append(over[before])
        for place, end in self._awaited(ends):
            if end in over:
                self._needs.setdefault(place, []).append(over[end])

    def _elements(self) -> list[list[int]]:
        """Return the message ends of each queue element, in order, with an empty element before each queue."""
        if not self.events.model.queued:
            return []
        ends, begins, first = queues(self.program, self.events.model, self.events.head)
        bounds = pairwise([*first.tolist(), len(ends)])
        return [x for low, high in bounds for x in [[]] * int(begins[low]) + [ends[low:high].tolist()]]

    def _behind(self, elements: list[list[int]]) -> Iterator[tuple[int, int]]:
        """Yield pairs of message ends: an end that waits in its queue or buffer, and an end that it waits for."""
        pairing, model = self.events.pairing, self.events.model
        if model.kind == "buffered":
            sends = np.flatnonzero(self.program.sends & (pairing.partner >= 0))
            found = [(sends, pairing.partner[sends]), pairing.sends.apart(1), pairing.receives.apart(1)]
            if model.capacity is not None:
                freed, later = pairing.sends.apart(model.capacity)
                found.append((pairing.partner[freed], later))
            for earlier, later in found:
                yield from zip(later.tolist(), earlier.tolist(), strict=True)
        for before, element in pairwise(elements):
            yield from product(element, before[:1])

    def _awaited(self, ends: Ints) -> Iterator[tuple[int, int]]:
        """Yield each position at which a rank waits for a message to complete, with an end of that message."""
        head, posted = self.events.head, self.events.model.posted
        blocking = ends[among(self.program.op[ends], (Op.SYNC, *SHAPES))] if posted else ends
        yield from zip(head[blocking].tolist(), blocking.tolist(), strict=True)
        if posted:
            receives, users = consumers(self.program)
            sends = np.flatnonzero(self.program.sends)
            yield from zip(head[users].tolist(), receives.tolist(), strict=True)
            yield from zip((self.size + self.program.rank[sends]).tolist(), sends.tolist(), strict=True)

    def members(self, node: int) -> list[int]:
        """Return both ends of a message that never completes."""
        return self._ends[node]

    def needs(self, node: int) -> list[int]:
        """Return a node's prerequisites that never happen, contracted to the instructions at which their ranks wait."""
        return list(dict.fromkeys(self._needs.get(node, [])))

    def _rank(self, node: int) -> int:
        return int(self.program.rank[node]) if node < self.size else node - self.size

    def links(self) -> list[Link]:
        """Return the shortest cycle of ranks.

        The result is empty if ranks wait only for partners that do not exist or for messages to themselves.
        """
        cycle = shortest_cycle([x for x in self.standing if x >= 0], self.needs)
        cycle = [x for x in cycle if x < self.between]
        edges = self._edge_ranks(cycle)
        links = []
        for i, node in enumerate(cycle):
            if node < self.size + self.ranks or edges[i - 1] == edges[i]:
                continue
            links.append(self._link(cycle[i - 1], node, cycle[(i + 1) % len(cycle)], edges[i - 1], edges[i]))
        first = min(range(len(links)), key=lambda i: links[i].blocked.rank, default=0)
        return links[first:] + links[:first]

    def _edge_ranks(self, cycle: list[int]) -> list[int]:
        """Return the rank on which each node waits for the next one."""
        ranks: list[int] = []
        for i, node in enumerate(cycle):
            after = cycle[(i + 1) % len(cycle)]
            if node < self.size + self.ranks:
                ranks.append(self._rank(node))
            elif after < self.size + self.ranks:
                ranks.append(self._rank(after))
            else:
                ranks.append(self._queue_rank(node, after, ranks[-1] if ranks else -1))
        return ranks

    def _queue_rank(self, node: int, after: int, stay: int) -> int:
        """Return a rank with a queue in which `after` is before `node`: `stay` if this rank has such a queue."""
        rank, head = self.program.rank, self.events.head
        mine = {int(rank[i]): int(head[i]) for i in self.members(node)}
        before = {int(rank[i]) for i in self.members(after) if head[i] < mine.get(int(rank[i]), 0)}
        if not before:
            return int(rank[self.members(after)[0]])
        return stay if stay in before else min(before)

    def _link(self, before: int, node: int, after: int, rank: int, other: int) -> Link:
        """Describe one step of the cycle in words."""
        program, here, there, behind = self.program, self._end(node, rank), self._end(node, other), -1
        if there < 0:
            there = self._end(after, other)
        elif after >= self.size + self.ranks:
            behind = self._end(after, other)
        queue = before >= self.size
        at = here if queue or program.sends[before] or program.receives[before] else before
        (until, until_step), (ahead, ahead_step) = self._name(there), self._name(behind)
        return Link(
            _blocked(program, rank, at - int(program.start[rank])),
            other,
            until,
            until_step,
            direction=int(program.sends[here]) - int(program.receives[here]),
            needs="" if at == here else self._name(here)[0],
            behind=ahead,
            behind_step=ahead_step,
            queue=self.events.model.posted and queue,
            places=(at, here, there),
        )

    def _name(self, index: int) -> tuple[str, int]:
        return (str(self.program[index]), self.program.step(index)) if index >= 0 else ("", 0)

    def _end(self, node: int, rank: int) -> int:
        if node < self.size + self.ranks:
            return -1
        return next((i for i in self.members(node) if int(self.program.rank[i]) == rank), -1)
