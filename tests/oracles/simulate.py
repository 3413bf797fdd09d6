"""Simulates a schedule or a program with dicts, fractions and repeated sweeps.

    run          a schedule in time: a slot starts when the slot before it is over and its inputs have come
    longest      the longest chain of operations that need each other: no order of ranks, no waiting for a turn
    held         what a rank holds, instant by instant, read off a run
    rendezvous   a program in which a SEND and its RECV happen where both ranks stand, one or in a batch

Nothing here is fast, and nothing here knows of event graphs, columns or clocks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from pipesched.model.costs import Costs as Given
from pipesched.model.ops import Compute, Instruction, Op
from pipesched.model.schedule import Program, Schedule

Spot: TypeAlias = tuple[int, int]  # rank, position in its list
Costs: TypeAlias = Mapping[str, Sequence[Fraction] | None]  # F, I, W, B, C by stage; FB by stage, or None: the sum


def rows(costs: Given, stages: int) -> Costs:
    """Return the given costs, by stage, and the costs that follow from them; C is 0; FB is the sum of its parts if
    None."""
    given = {key: x if isinstance(x, tuple) else (x,) * stages for key, x in costs.given.items()}
    each = [of_stage({key: row[s] for key, row in given.items()}) for s in range(stages)]
    return {**{key: tuple(of[key] for of in each) for key in "FIWBC"}, "FB": given.get("FB")}


def of_stage(given: dict[str, Fraction]) -> dict[str, Fraction]:
    """Return F, I, W, B and C of one stage."""
    f, i, w, b = (given.get(key) for key in "FIWB")
    none_given = f is i is w is b is None
    if none_given:
        f, i, w, b = Fraction(1), Fraction(1), Fraction(1), Fraction(2)
    elif b is not None:
        if i is None and w is None:
            i = w = b / 2
        elif i is None and w is not None:
            i = b - w
        elif w is None and i is not None:
            w = b - i
    else:
        one = i if i is not None else w
        i = i if i is not None else one if one is not None else f
        w = w if w is not None else one if one is not None else f
        assert i is not None and w is not None
        b = i + w
    if f is None:
        f = given["I"] if "I" in given else b / 2 if b is not None else None
    assert f is not None and i is not None and w is not None and b is not None
    return {"F": f, "I": i, "W": w, "B": b, "C": given.get("C", Fraction(0))}


@dataclass(frozen=True)
class Played:
    """start, end: of every operation that ran. stuck: by rank the position that never runs, or None."""

    orders: list[list[Compute]]
    start: dict[Spot, Fraction]
    end: dict[Spot, Fraction]
    stuck: list[int | None]

    @property
    def makespan(self) -> Fraction:
        return max(self.end.values(), default=Fraction(0))


def orders_of(schedule: Schedule) -> list[list[Compute]]:
    return [schedule.order(rank) for rank in range(schedule.ranks)]


def slots(order: Sequence[Compute]) -> Iterator[list[int]]:
    """Yield the positions of each slot: one operation, or the two of an overlap pair."""
    slot: list[int] = []
    for i, x in enumerate(order):
        if slot and not x.second:
            yield slot
            slot = []
        slot.append(i)
    if slot:
        yield slot


def left_out(schedule: Schedule) -> set[tuple[int, int]]:
    """Return each stage that a microbatch skips: the one after it reads the one before it."""
    table = schedule.placement.table.tolist()
    return {(stage, i) for stage, row in enumerate(table) for i, rank in enumerate(row) if rank < 0}


def producers(orders: list[list[Compute]], stages: int, skipped: Collection[tuple[int, int]] = ()) -> dict[Spot, Spot]:
    """Return the producer of the input of each operation, if it has one. skipped: as `left_out`."""
    where: dict[tuple[str, int, int], Spot] = {}
    for rank, order in enumerate(orders):
        for i, x in enumerate(order):
            where.setdefault((x.op.name, x.stage, x.microbatch), (rank, i))
    found = {}
    for rank, order in enumerate(orders):
        for i, x in enumerate(order):
            wanted = _wanted(x, stages, skipped)
            spots = [where[kind, stage, x.microbatch] for kind, stage in wanted if (kind, stage, x.microbatch) in where]
            if spots:
                found[rank, i] = min(spots)
    return found


def _wanted(x: Compute, stages: int, skipped: Collection[tuple[int, int]]) -> list[tuple[str, int]]:
    """Return the possible producers of the input of an operation."""
    before, behind = x.stage - 1, x.stage + 1
    while (before, x.microbatch) in skipped:
        before -= 1
    while (behind, x.microbatch) in skipped:
        behind += 1
    match x.op:
        case Op.F:
            return [("F", before)] if x.stage else []
        case Op.W:
            return [("I", x.stage)]
        case Op.R:
            return []  # an F of its own rank, which stands before it
        case _ if x.stage == stages - 1:
            return [("F", x.stage)]
        case _:
            return [("I", behind), ("B", behind)]


def slot_cost(order: Sequence[Compute], slot: list[int], costs: Costs) -> Fraction:
    parts = [order[i] for i in slot]
    whole = costs["FB"]
    if len(parts) == 2 and whole is not None and parts[1].op is Op.B:
        return whole[parts[0].stage]
    total = Fraction(0)
    for x in parts:
        row = costs[x.op.name]
        assert row is not None
        total += row[x.stage]
    return total


def run(schedule: Schedule, costs: Costs) -> Played:
    """Sweep over the ranks until nothing changes. An input of the same rank exists or not: there is no wait for it."""
    orders = orders_of(schedule)
    made_by = producers(orders, schedule.stages, left_out(schedule))
    left = [list(slots(order)) for order in orders]
    start: dict[Spot, Fraction] = {}
    end: dict[Spot, Fraction] = {}
    clock = [Fraction(0)] * len(orders)
    moved = True
    while moved:
        moved = False
        for rank, order in enumerate(orders):
            if not left[rank]:
                continue
            slot = left[rank][0]
            inputs = [made_by[rank, i] for i in slot if (rank, i) in made_by]
            arrivals = _arrivals(orders, rank, inputs, end, costs)
            if arrivals is None:
                continue
            begin = max([clock[rank], *arrivals])
            clock[rank] = begin + slot_cost(order, slot, costs)
            for i in slot:
                start[rank, i], end[rank, i] = begin, clock[rank]
            left[rank].pop(0)
            moved = True
    return Played(orders, start, end, [rest[0][0] if rest else None for rest in left])


def _arrivals(
    orders: list[list[Compute]], rank: int, inputs: list[Spot], end: dict[Spot, Fraction], costs: Costs
) -> list[Fraction] | None:
    """Return the arrival of each input from another rank, or None if one of them has not been made."""
    latency = costs["C"]
    assert latency is not None
    found = []
    for there, i in inputs:
        if there == rank:
            continue
        if (there, i) not in end:
            return None
        found.append(end[there, i] + latency[orders[there][i].stage])
    return found


def longest(schedule: Schedule, costs: Costs) -> Fraction:
    """Return the longest chain of dependencies, slots with their full cost, messages between ranks with their
    latency."""
    orders = orders_of(schedule)
    made_by = producers(orders, schedule.stages, left_out(schedule))
    slot_of = {(rank, i): (rank, slot[0]) for rank, order in enumerate(orders) for slot in slots(order) for i in slot}
    members: dict[Spot, list[int]] = defaultdict(list)
    for (_, i), head in slot_of.items():
        members[head].append(i)
    latency = costs["C"]
    assert latency is not None
    known: dict[Spot, Fraction] = {}

    def end(head: Spot) -> Fraction:
        if head not in known:
            rank = head[0]
            begin = Fraction(0)
            for i in members[head]:
                if (rank, i) in made_by:
                    there, j = made_by[rank, i]
                    delay = latency[orders[there][j].stage] if there != rank else Fraction(0)
                    begin = max(begin, end(slot_of[there, j]) + delay)
            known[head] = begin + slot_cost(orders[rank], sorted(members[head]), costs)
        return known[head]

    return max([end(head) for head in members], default=Fraction(0))


def held(
    played: Played, at_input: Fraction, at_weight: Fraction, sizes: Sequence[Fraction] | None = None
) -> list[Fraction]:
    """Return the most activations held at one time by each rank: F takes at its start, the others free at their end.

    sizes and results are in even stages; an F takes 1 by default.

    At one instant, the order of the rank's list decides; in a slot the F takes first.
    """
    change = {Op.F: Fraction(1), Op.I: -at_input, Op.W: -at_weight, Op.B: Fraction(-1)}
    peaks = []
    for rank, order in enumerate(played.orders):
        events = []
        for i, x in enumerate(order):
            instant = played.start if x.op is Op.F else played.end
            events.append((instant[rank, i], i, change[x.op] * (sizes[x.stage] if sizes else 1)))
        now, most = Fraction(0), Fraction(0)
        for _, _, step in sorted(events):
            now += step
            most = max(most, now)
        peaks.append(most)
    return peaks


def partners(lists: list[list[Instruction]]) -> dict[Spot, Spot]:
    """Return the i-th SEND of a channel and its i-th RECV; the i-th SYNCs of two ranks with each other."""
    queues: dict[tuple[object, ...], list[Spot]] = defaultdict(list)
    for rank, listed in enumerate(lists):
        for i, x in enumerate(listed):
            if x.op.send:
                queues["send", x.communicator, rank, x.peer].append((rank, i))
            elif x.op.receive:
                queues["receive", x.communicator, x.peer, rank].append((rank, i))
            elif x.op is Op.SYNC:
                queues["sync", rank, x.peer].append((rank, i))
    found = {}
    for key, spots in queues.items():
        other = ("receive", *key[1:]) if key[0] == "send" else ("sync", key[2], key[1]) if key[0] == "sync" else None
        for one, two in zip(spots, queues.get(other, []) if other else [], strict=False):
            found[one], found[two] = two, one
    return found


def rendezvous(program: Program) -> list[int]:
    """Return the end of each rank: the first instruction of the line that it cannot leave, or the length of its
    list."""
    lists = [program.instructions(rank) for rank in range(program.ranks)]
    partner = partners(lists)
    at = [0] * len(lists)
    over: set[Spot] = set()
    moved = True
    while moved:
        moved = False
        for rank, listed in enumerate(lists):
            line = [(rank, i) for i in _line(listed, at[rank]) if _meets(listed[i])]
            for spot in set(line) - over:
                there = partner.get(spot)
                if there is not None and there[1] in _line(lists[there[0]], at[there[0]]):
                    over |= {spot, there}
                    moved = True
            if at[rank] < len(listed) and over.issuperset(line):
                at[rank] += len(_line(listed, at[rank]))
                moved = True
    return at


def _meets(x: Instruction) -> bool:
    return x.op.send or x.op.receive or x.op is Op.SYNC


def finishes(program: Program) -> bool:
    return rendezvous(program) == [int(n) for n in program.start[1:] - program.start[:-1]]


def _line(listed: list[Instruction], i: int) -> list[int]:
    """Return the line from position i on: a batch, or a single instruction."""
    if i == len(listed):
        return []
    line = [i]
    while listed[i].group >= 0 and _batched(listed, line[-1] + 1, listed[i].group):
        line.append(line[-1] + 1)
    return line


def _batched(listed: list[Instruction], i: int, group: int) -> bool:
    return i < len(listed) and listed[i].group == group and (listed[i].op.send or listed[i].op.receive)
