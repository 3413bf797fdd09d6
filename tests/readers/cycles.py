"""Reads a reported cycle from its labels alone and compares it with a simulation.

Every rank of it really stops there, and waits for an instruction of the next rank at or after that rank's stop.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pipesched.diagnostics import Diagnostic, Label
from pipesched.model.costs import Costs
from pipesched.model.schedule import Schedule
from pipesched.report.report import Report
from tests.oracles import simulate

COMPUTE = re.compile(
    r"rank (\d+), step (\d+)(?: \((.+)\))?: (\S+) waits for (\S+), which rank (\d+) runs at step (\d+)"
)
MESSAGE = re.compile(r"rank (\d+), step (\d+)(?: \((.+)\))?: waits until rank (\d+) reaches (\S+) \(step (\d+)\)")


@dataclass(frozen=True)
class Hop:
    """Rank `rank` is blocked at `step` until rank `other` reaches its `there`; steps count from 1."""

    rank: int
    step: int
    other: int
    there: int
    label: Label


def hops(report: Report, code: str) -> list[Hop]:
    """Return the cycle of the one finding of that code, from all of its labels."""
    (found,) = [d for d in report.diagnostics if d.code == code]
    return [_hop(found, label) for label in found.labels]


def _hop(found: Diagnostic, label: Label) -> Hop:
    pattern, there = (COMPUTE, 7) if found.code == "PS306" else (MESSAGE, 6)
    match = pattern.fullmatch(label.message)
    assert match, label.message
    other = match[6] if found.code == "PS306" else match[4]
    return Hop(int(match[1]), int(match[2]), int(other), int(match[there]), label)


def closed(cycle: list[Hop], stands: Mapping[int, int], pairs: Mapping[int, bool] | None = None) -> None:
    """Each rank is where its label says, once; each waits for an instruction that the next one is at or has not
    reached.

    pairs: of ranks that stand at an overlap pair, whose label may be at the second part.
    """
    assert len({hop.rank for hop in cycle}) == len(cycle) > 1
    for hop, after in zip(cycle, cycle[1:] + cycle[:1], strict=True):
        assert hop.step - 1 - stands[hop.rank] in ((0, 1) if pairs and pairs[hop.rank] else (0,))
        assert hop.other == after.rank and hop.there > stands[after.rank]


def shortest(waits: Mapping[int, set[int]]) -> int:
    """Return the fewest ranks that wait for each other in a cycle, by trying all lengths from each rank."""
    lengths = []
    for first in waits:
        reached, length = waits[first], 1
        while reached and first not in reached and length <= len(waits):
            reached = {other for rank in reached for other in waits.get(rank, set())}
            length += 1
        if first in reached:
            lengths.append(length)
    return min(lengths)


def stopped(schedule: Schedule) -> tuple[dict[int, int], dict[int, set[int]]]:
    """Return, by a slow run, the stop of each rank, and the ranks for which it waits there."""
    played = simulate.run(schedule, simulate.rows(Costs(), schedule.stages))
    made_by = simulate.producers(played.orders, schedule.stages)
    stands = {rank: i for rank, i in enumerate(played.stuck) if i is not None}
    waits: dict[int, set[int]] = {}
    for rank, i in stands.items():
        slot = next(slot for slot in simulate.slots(played.orders[rank]) if i in slot)
        inputs = [made_by[rank, j] for j in slot if (rank, j) in made_by]
        waits[rank] = {there for there, j in inputs if there != rank and (there, j) not in played.end}
    return stands, waits
