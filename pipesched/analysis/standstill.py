"""The point where a run stops for good, the operations run by then, and the minimal cycle that stops it.

    rank 0   0F0 0F1 .. 0B0 0F2 | 0SEND_F2     waits until rank 1 reaches 1RECV_F2, queued behind 1SEND_B1
    rank 1   ..  1F0 1B0 1F1 1B1 | 1SEND_B1    waits until rank 0 reaches 0RECV_B1, queued behind 0SEND_F2

All runs of a program under a model fire the same events (`analysis.events`), so all of them stop here. Compute orders
may wait for each other without any message; then no model helps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipesched.analysis.communication import Model
from pipesched.analysis.cycle import Cycle, Hop, shortest_cycle
from pipesched.analysis.dependencies import Dependencies
from pipesched.analysis.events import Events
from pipesched.analysis.timeline import Timeline
from pipesched.diagnostics import Code
from pipesched.model.columns import Bools, computes
from pipesched.model.schedule import Program, Schedule

NAMED = 8
"""The most ranks that are named one by one."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """A rank that never continues: its instruction and step, from 1; operation: its index in the schedule, or -1."""

    rank: int
    at: str
    step: int
    operation: int = -1


@dataclass(frozen=True, slots=True)
class Link:
    """A step of the cycle: a rank is blocked until rank `other` reaches `until`, which is queued behind `behind`.

    needs: the instruction that an operation lacks, such as its receive. direction: of the message between them, 1 if it
    is for `other`, -1 if it comes from there, 0 for a SYNC. queue: not the rank is blocked but its posted message; the
    rank may be elsewhere, or done. hop: its position in the program, None if compute orders wait for each other.
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
    hop: Hop | None = None

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


@dataclass(frozen=True, eq=False)
class Standstill:
    """A run that stops. ran: whether each operation of the schedule ends. blocked: every rank that does not, in order.

    cycle: empty if a rank waits for a message that nobody sends or takes. model: empty if none helps.
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
        """Every rank that waits, or whose queue does, once, by rank; those in the cycle as they appear there."""
        by_rank = {x.rank: x for x in self.blocked}
        by_rank |= {link.blocked.rank: link.blocked for link in reversed(self.cycle)}
        return tuple(by_rank[rank] for rank in sorted(by_rank))

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of the cycle, in its order."""
        return tuple(dict.fromkeys(link.blocked.rank for link in self.cycle))


def together(ranks: Sequence[int]) -> str:
    """Return the ranks of a cycle, in words."""
    if len(set(ranks)) == 1:
        return f"rank {ranks[0]} waits for itself"
    if len(ranks) > NAMED:
        return f"{len(ranks)} ranks wait in a cycle"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]} wait for each other"


def of_program(program: Program, model: Model) -> Standstill | None:
    """Return where a program stops under a model, None if it ends; O(instructions)."""
    events = Events(program, model)
    if all(stop < 0 for stop in events.stops):
        return None
    blocked = (_blocked(program, rank, stop) for rank, stop in enumerate(events.stops) if stop >= 0)
    hops = Cycle(events).hops()
    alone = any(program.peer[hop.here] == hop.rank for hop in hops)  # a rank that is its own peer, which is not a cycle
    cycle = () if alone else tuple(_link(program, model, hop) for hop in hops)
    return Standstill(str(model), events.ran[: len(program)][computes(program.op)], tuple(blocked), cycle)


def of_orders(schedule: Schedule, dependencies: Dependencies, times: Timeline) -> Standstill:
    """Return where compute orders stop that wait for each other, whatever the messages."""
    blocked = tuple(_at(schedule, index) for index in times.stuck if index >= 0)
    links = tuple(
        Link(_at(schedule, part), int(schedule.rank[producer]), str(schedule[producer]), schedule.step(producer), -1)
        for part, producer in compute_cycle(schedule, dependencies, times)
    )
    return Standstill("", times.start >= 0, blocked, links)


def compute_cycle(schedule: Schedule, dependencies: Dependencies, times: Timeline) -> list[tuple[int, int]]:
    """Return a shortest cycle of ranks, from the lowest: where each stopped, and the producer that the next lacks."""
    missing = {rank: _missing(schedule, dependencies, times, i) for rank, i in enumerate(times.stuck) if i >= 0}
    ranks = shortest_cycle(missing, lambda rank: [int(schedule.rank[producer]) for _, producer in missing[rank]])
    lowest = ranks.index(min(ranks)) if ranks else 0
    ranks = ranks[lowest:] + ranks[:lowest]
    return [
        next(pair for pair in missing[rank] if int(schedule.rank[pair[1]]) == other)
        for rank, other in zip(ranks, ranks[1:] + ranks[:1], strict=True)
    ]


def cut(dependencies: Dependencies, ran: Bools) -> Dependencies:
    """Return the dependencies of a stopped run: each operation that never ran waits for itself."""
    never = np.flatnonzero(~ran)
    producer, crosses = dependencies.producer.copy(), dependencies.crosses | ~ran
    producer[never] = never
    return replace(dependencies, producer=producer, crosses=crosses)


def _missing(schedule: Schedule, dependencies: Dependencies, times: Timeline, index: int) -> list[tuple[int, int]]:
    """Return (part, producer) for each input of a slot that never arrives."""
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


def _link(program: Program, model: Model, hop: Hop) -> Link:
    """Describe a hop of the cycle in words."""

    def name(index: int) -> tuple[str, int]:
        return (str(program[index]), program.step(index)) if index >= 0 else ("", 0)

    (until, until_step), (behind, behind_step) = name(hop.there), name(hop.behind)
    return Link(
        _blocked(program, hop.rank, hop.at - int(program.start[hop.rank])),
        hop.other,
        until,
        until_step,
        direction=int(program.sends[hop.here]) - int(program.receives[hop.here]),
        needs="" if hop.at == hop.here else name(hop.here)[0],
        behind=behind,
        behind_step=behind_step,
        queue=model.posted and hop.queue,
        hop=hop,
    )
