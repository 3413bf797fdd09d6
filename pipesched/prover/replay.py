"""Start times of a sample's instances at given costs: longest paths through the graph of slots."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pipesched.prover.enumeration import points
from pipesched.prover.sampling import Instance, Sample, Stuck

Costs = Mapping[str, int]
Times = tuple[list[int], list[int]]


@dataclass(eq=False)
class Slot:
    """A slot at one size. kind: the letter of its cost. inputs: the slots for which it waits, each with True if a
    message carries its result.
    """

    first: Instance
    kind: str
    rank: int
    size: tuple[int, ...]
    inputs: list[tuple[Slot, bool]] = field(default_factory=list)
    number: int = -1


@dataclass(eq=False)
class Replay:
    """The slots of a sample in an order in which they can run."""

    sample: Sample

    def __post_init__(self) -> None:
        """Order the slots; raise Stuck if they wait for each other."""
        self.slots: list[Slot] = []
        self._times: dict[tuple[tuple[str, int], ...], Times] = {}
        slots: list[Slot] = []
        made: defaultdict[tuple[tuple[int, ...], str, tuple[int, int]], list[Slot]] = defaultdict(list)
        own: dict[int, Slot] = {}
        statements = self.sample.model.statements
        for (size, rank), instances in self.sample.ranks.items():
            before: Slot | None = None
            for each in instances:
                statement = statements[each.statement]
                if statement.second and before is not None:
                    slot = before
                    slot.kind += statement.letter
                else:
                    slot = Slot(each, statement.letter, rank, size)
                    slots.append(slot)
                    if before is not None:
                        slot.inputs.append((before, False))
                own[id(each)] = before = slot
                made[size, "G" if statement.letter in "IB" else statement.letter, each.key].append(slot)
        for instances in self.sample.ranks.values():
            for each in instances:
                self._inputs(each, own[id(each)], made)
        self._sorted(slots)

    def _inputs(
        self, each: Instance, slot: Slot, made: Mapping[tuple[tuple[int, ...], str, tuple[int, int]], list[Slot]]
    ) -> None:
        stage, j = each.key
        letter = self.sample.model.statements[each.statement].letter
        reads, readers = self._reads[slot.size]
        if letter == "F":
            wanted = [("F", s) for s in reads[stage]]
        elif letter in "IB":
            wanted = [("G", s) for s in readers[stage]] or [("F", stage)]
            wanted.append(("R", stage))
        else:
            wanted = [("G" if letter == "W" else "F", stage)]
        for kind, s in wanted:
            slot.inputs += [(x, x.rank != slot.rank) for x in made.get((slot.size, kind, (s, j)), ())]

    @cached_property
    def _reads(self) -> dict[tuple[int, ...], tuple[dict[int, list[int]], dict[int, list[int]]]]:
        """For each size, the stages that each stage reads, and the stages that read it."""
        sample = self.sample
        found: dict[tuple[int, ...], tuple[dict[int, list[int]], dict[int, list[int]]]] = {}
        for size in sample.sizes:
            found[size] = defaultdict(list), defaultdict(list)
        read = sample.model.placing.reads.intersect_domain(sample.model.placing.stages)
        for *size, reader, of in points(read.wrap(), sample.grid).tolist():
            found[tuple(size)][0][reader].append(of)
            found[tuple(size)][1][of].append(reader)
        return found

    def _sorted(self, slots: list[Slot]) -> None:
        users: defaultdict[int, list[Slot]] = defaultdict(list)
        left = {id(slot): len(slot.inputs) for slot in slots}
        for slot in slots:
            for before, _ in slot.inputs:
                users[id(before)].append(slot)
        ready = deque(slot for slot in slots if not slot.inputs)
        while ready:
            slot = ready.popleft()
            slot.number = len(self.slots)
            self.slots.append(slot)
            for user in users[id(slot)]:
                left[id(user)] -= 1
                if not left[id(user)]:
                    ready.append(user)
        if len(self.slots) < len(slots):
            raise Stuck

    def times(self, costs: Costs) -> Times:
        """Return the start and the end of every slot, in the order of `slots`."""
        key = tuple(sorted(costs.items()))
        if key not in self._times:
            late, starts, ends = costs.get("C", 0), list[int](), list[int]()
            lengths = {kind: cost_of(kind, costs) for kind in {slot.kind for slot in self.slots}}
            for slot in self.slots:
                start = 0
                for x, far in slot.inputs:
                    start = max(start, ends[x.number] + late if far else ends[x.number])
                starts.append(start)
                ends.append(start + lengths[slot.kind])
            self._times[key] = starts, ends
        return self._times[key]

    def justified(self, generators: Sequence[Costs]) -> tuple[set[int], set[int]]:
        """Return the first instances of the slots that have the same longest path at all generators, and of the slots
        on paths to a slot that ends last. Instances are identified by `id`.
        """
        starts, ends = ([*zip(*column, strict=True)] for column in zip(*map(self.times, generators), strict=True))
        late = tuple(costs.get("C", 0) for costs in generators)
        arrivals = [tuple(x + c for x, c in zip(end, late, strict=True)) for end in ends] if any(late) else ends
        before: dict[int, Slot | None] = {}
        own: defaultdict[tuple[tuple[int, ...], int], dict[tuple[int, ...], Slot]] = defaultdict(dict)
        last: dict[tuple[int, ...], Slot] = {}
        most: defaultdict[tuple[int, ...], tuple[int, ...]] = defaultdict(lambda: (0,) * len(late))
        for slot, start, end in zip(self.slots, starts, ends, strict=True):
            most[slot.size] = tuple(map(max, most[slot.size], end))
            arrived = (x for x, far in slot.inputs if far and x.number in before and arrivals[x.number] == start)
            behind = next(arrived, own[slot.size, slot.rank].get(start))
            if behind is not None or not any(start):
                before[slot.number] = behind
                own[slot.size, slot.rank][end] = slot
                if end == most[slot.size]:
                    last[slot.size] = slot
        return {id(slot.first) for slot in self.slots if slot.number in before}, _ways(last.values(), before)


def _ways(endings: Iterable[Slot], before: Mapping[int, Slot | None]) -> set[int]:
    """Return the first instances of the slots on paths to the given last slots. before: each slot's predecessor."""
    way: set[int] = set()
    for ending in endings:
        at: Slot | None = ending
        while at is not None and id(at.first) not in way:
            way.add(id(at.first))
            at = before[at.number]
    return way


def cost_of(kind: str, costs: Costs) -> int:
    """Return the cost of a slot; an overlap of F and B has its own cost."""
    return costs[kind] if kind in costs else sum(costs[x] for x in kind)
