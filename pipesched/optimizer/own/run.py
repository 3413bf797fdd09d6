"""Orders of a schedule's own slots: the time of an order, and the slots that a rank can run next under its cap.

slot       an operation or a pair; takes memory at its start, and takes or frees memory at its end
order      the slots of each rank in sequence; each slot starts as early as possible, as in `analysis.timeline`
copies     O and L begin copies on the two engines of their rank, in the order of that rank
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias

from pipesched.model.numbers import shown
from pipesched.optimizer.proof.own_arcs import Arcs
from pipesched.optimizer.proof.own_held import changes
from pipesched.schedule_analysis import Analysis

Orders: TypeAlias = list[list[int]]
"""The slots of each rank, in order."""


@dataclass(frozen=True, eq=False)
class Slots:
    """The slots of a schedule. For each slot, rank; cost: its duration in ticks; needs: the most memory that it adds
    while it runs; adds: the change in memory once it has ended.

    cap: the cap of each rank in parts, or None; part: the size of a part, in the unit of peaks. For each slot, inputs:
    the pairs (slot or copy, delay) that it waits for; here: the slots of its rank that must run before it; begins: the
    copies that begin at its end, each with its engine; sequence: its microbatch, or the sequence of which the
    microbatch is a slice. For each slot or copy, follow: the slots and copies that wait for it; tails: the length of
    the longest path from its end. named: the slot of each kind, stage and microbatch, if microbatches differ and no
    slot is a pair.
    """

    rank: list[int]
    cost: list[int]
    needs: list[int]
    adds: list[int]
    cap: list[int | None]
    span: bool
    part: Fraction = Fraction(1)
    inputs: list[list[tuple[int, int]]] = field(default_factory=list)
    here: list[list[int]] = field(default_factory=list)
    follow: list[list[int]] = field(default_factory=list)
    begins: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    tails: list[int] = field(default_factory=list)
    sequence: list[int] = field(default_factory=list)
    named: dict[tuple[int, int, int], int] = field(default_factory=dict)

    @classmethod
    def of(cls, made: Analysis, arcs: Arcs, caps: Sequence[Fraction] | None, *, span: bool) -> Slots:
        """Return the slots of a valid schedule. caps: the cap of each rank, in the unit of peaks, or None."""
        schedule, memory = made.schedule, made.memory
        kept, more = changes(schedule, memory.kept), memory.held - memory.kept
        count = len(arcs.rank)
        needs, adds = [0] * count, [0] * count
        for slot, change, extra in zip(arcs.slot.tolist(), kept.tolist(), more.tolist(), strict=True):
            adds[slot] += change
            needs[slot] = max(needs[slot], adds[slot] + extra)
        ranks = range(schedule.ranks)
        whole = [None if caps is None else int(caps[r] / memory.part // 1) for r in ranks]
        found = cls(
            arcs.rank.tolist(), arcs.cost.tolist(), needs, adds, whole, span, memory.part, tails=arcs.tails().tolist()
        )
        if made.costs.by_microbatch and schedule.slices == 1 and not schedule.joined.any():
            columns = (schedule.op, schedule.stage, schedule.microbatch)
            found.named.update({key: x for x, key in enumerate(zip(*(of.tolist() for of in columns), strict=True))})
        found.sequence.extend([0] * count)
        for slot, i in zip(arcs.slot.tolist(), (schedule.microbatch // schedule.slices).tolist(), strict=True):
            found.sequence[slot] = max(found.sequence[slot], i)
        found._link(arcs)
        if arcs.copies is not None:
            engines = 2 * schedule.rank[arcs.copies.op] + (arcs.copies.waits == arcs.copies.op)
            begins = zip(arcs.slot[arcs.copies.after].tolist(), engines.tolist(), strict=True)
            for n, (after, engine) in enumerate(begins):
                found.begins.setdefault(after, []).append((count + n, engine))
        return found

    def _link(self, arcs: Arcs) -> None:
        count = len(self.rank)
        for lists, size in ((self.inputs, arcs.cost), (self.follow, arcs.cost), (self.here, self.rank)):
            lists.extend([] for _ in size)
        for one, two, delay in zip(arcs.before.tolist(), arcs.after.tolist(), arcs.delay.tolist(), strict=True):
            self.follow[one].append(two)
            if one < count and two < count and self.rank[one] == self.rank[two]:
                self.here[two].append(one)
            else:
                self.inputs[two].append((one, delay))

    @cached_property
    def microbatches(self) -> list[int]:
        """The microbatches that `exchanged` can exchange; empty if they are alike."""
        some = sorted({i for _, _, i in self.named})
        return some if len(some) > 1 else []

    def exchanged(self, orders: Orders, one: int, two: int) -> Orders | None:
        """Return the orders with two microbatches exchanged; None if they exceed a cap or an operation changes rank."""
        other, turned = {one: two, two: one}, [*range(len(self.rank))]
        for (op, stage, i), x in self.named.items():
            turned[x] = self.named.get((op, stage, other.get(i, i)), -1)
        made = [[turned[x] for x in order] for order in orders]
        if any(self.rank[x] != r for r, order in enumerate(made) for x in order if x >= 0) or -1 in turned:
            return None
        return made if all(self.fits(rank, order) for rank, order in enumerate(made)) else None

    @property
    def too_large(self) -> str:
        """The reason why a single slot exceeds the cap of its rank; empty if no slot does."""
        for x, rank in enumerate(self.rank):
            cap = self.cap[rank]
            if cap is not None and self.needs[x] > cap:
                return f"an operation holds {shown(self.needs[x] * self.part)}, over the cap of rank {rank}"
        return ""

    def source(self, node: int) -> int:
        """Return the slot after which a copy begins; for a slot, return the slot itself."""
        return node if node < len(self.rank) else self.inputs[node][0][0]

    def fits(self, rank: int, order: Sequence[int]) -> bool:
        """Return True if, in this order, each slot runs after all slots in its `here`, and the cap is not exceeded."""
        cap, held, done = self.cap[rank], 0, set[int]()
        for x in order:
            if (cap is not None and held + self.needs[x] > cap) or not done.issuperset(self.here[x]):
                return False
            held += self.adds[x]
            done.add(x)
        return True

    def ends(self, orders: Orders) -> list[int] | None:
        """Return the end of each slot and copy; None if ranks wait for each other in a cycle."""
        end, at, clock = [-1] * len(self.cost), [0] * len(orders), [0] * len(orders)
        engine, waiting, left = defaultdict[int, int](int), defaultdict[int, list[int]](list), list(range(len(orders)))
        inputs, cost = self.inputs, self.cost
        while left:
            rank = left.pop()
            order, i, now = orders[rank], at[rank], clock[rank]
            while i < len(order):
                x, start = order[i], now
                for other, delay in inputs[x]:
                    if end[other] < 0:
                        waiting[other].append(rank)
                        break
                    start = max(start, end[other] + delay)
                else:
                    end[x] = now = start + cost[x]
                    i += 1
                    for copy, of in self.begins.get(x, ()):
                        end[copy] = engine[of] = max(engine[of], now) + cost[copy]
                    left += waiting.pop(x, ())
                    continue
                break
            at[rank], clock[rank] = i, now
        return end if all(n == len(order) for n, order in zip(at, orders, strict=True)) else None

    def value(self, orders: Orders, end: Sequence[int]) -> int:
        """Return the objective of an order, given the end of each slot and copy."""
        if not self.span:
            return max((end[order[-1]] for order in orders if order), default=0)
        return max((end[order[-1]] - end[order[0]] + self.cost[order[0]] for order in orders if order), default=0)
