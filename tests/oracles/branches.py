"""An independent simulator of stages that read stages other than the previous one; it uses only names, sets and
repeated sweeps.

A step is named by its letter, its stage and its microbatch. What it waits for:

    F(s)         F of every stage that s reads
    I(s), B(s)   I or B of every stage that reads s; of the stage without readers, its own F
    W(s)         its own I

A frozen stage has no W, and an I where something before it is trained; without that it has its F alone, which keeps
nothing when it is over.

A rank runs its slots in the order of its list; a slot has one step, or two that run as one. Results of another rank
arrive after the latency of its stage. Each of these is one message, for one reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

Step: TypeAlias = tuple[str, int, int]
Slot: TypeAlias = tuple[Step, ...]


@dataclass(frozen=True)
class Model:
    """rank_of, reads: by stage. fused: whether backwards are B. cost: by letter and stage, C the latency; M: held.

    frozen: the stages that are not trained.
    """

    rank_of: Sequence[int]
    reads: Sequence[frozenset[int]]
    microbatches: int
    fused: bool
    cost: Mapping[str, Sequence[Fraction]]
    frozen: frozenset[int] = frozenset()

    @property
    def stages(self) -> int:
        return len(self.rank_of)

    @property
    def ranks(self) -> int:
        return max(self.rank_of) + 1

    def letters(self, stage: int) -> str:
        """Return the kinds of operation that a stage runs."""
        if stage not in self.frozen:
            return "FB" if self.fused else "FIW"
        return "FI" if self.fed(stage) else "F"

    def fed(self, stage: int) -> bool:
        """Return True if a stage before it is trained."""
        return any(other not in self.frozen or self.fed(other) for other in self.reads[stage])

    def inputs(self, step: Step) -> set[Step]:
        """Return the steps that must have run before a step can."""
        letter, stage, i = step
        if letter == "F":
            return {("F", other, i) for other in self.reads[stage]}
        if letter == "W":
            return {("I", stage, i)}
        after = {other for other in range(self.stages) if stage in self.reads[other]}
        return {(self.letters(other)[1], other, i) for other in after} or {("F", stage, i)}

    def steps(self) -> list[Step]:
        return [(x, s, i) for s in range(self.stages) for x in self.letters(s) for i in range(self.microbatches)]

    def messages(self) -> set[tuple[str, int, int, int]]:
        """Return the kind, source stage, target stage and microbatch of every message between ranks."""
        pairs = ((x, y) for y in self.steps() for x in self.inputs(y) if self.rank_of[x[1]] != self.rank_of[y[1]])
        return {("F" if y[0] == "F" else "B", x[1], y[1], y[2]) for x, y in pairs}


def play(model: Model, orders: Sequence[Sequence[Slot]]) -> dict[Step, tuple[Fraction, Fraction]]:
    """Return the start and end of every step that runs."""
    times: dict[Step, tuple[Fraction, Fraction]] = {}
    left, clock = [list(order) for order in orders], [Fraction(0)] * len(orders)
    moved = True
    while moved:
        moved = False
        for rank, slots in enumerate(left):
            if not slots:
                continue
            needed = {x for step in slots[0] for x in model.inputs(step) if model.rank_of[x[1]] != rank}
            if any(x not in times for x in needed):
                continue
            begin = max([clock[rank], *(times[x][1] + model.cost["C"][x[1]] for x in needed)])
            clock[rank] = begin + sum((model.cost[x][s] for x, s, _ in slots[0]), Fraction(0))
            times |= dict.fromkeys(slots.pop(0), (begin, clock[rank]))
            moved = True
    return times


def peaks(model: Model, orders: Sequence[Sequence[Slot]], at_input: Fraction) -> list[Fraction]:
    """Return the most that each rank holds, in even stages: an F takes at once, backwards free when their slot ends."""
    found = []
    for order in orders:
        now, most = Fraction(0), Fraction(0)
        for slot in order:
            for letter, stage, _ in slot:
                now += model.cost["M"][stage] if letter == "F" else Fraction(0)
                most = max(most, now)
            for letter, stage, _ in slot:
                share = {"F": Fraction(0), "I": at_input, "W": 1 - at_input, "B": Fraction(1)}[letter]
                if stage in model.frozen:
                    share = Fraction(letter == model.letters(stage)[-1])
                now -= share * model.cost["M"][stage]
        found.append(most)
    return found
