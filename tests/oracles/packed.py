"""An independent simulator of programs whose microbatches differ; it uses only names, fractions and repeated sweeps.

All that costs is looked up by its key, its stage and its microbatch. A step is named by its letter, its stage and its
microbatch; slices of one sequence also wait for each other, on all ranks:

    F(s, i)          waits for F(s - 1, i), and for F(s, i - 1) of its sequence
    I, B(s, i)       wait for I or B(s + 1, i), the last stage for its own F; and for I or B(s, i + 1) of its sequence
    W(s, i)          waits for its own I
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias

Step: TypeAlias = tuple[str, int, int]
Slot: TypeAlias = tuple[Step, ...]
Cost: TypeAlias = Mapping[tuple[str, int, int], Fraction]  # F, I, W, B, C, M of a stage and a microbatch; FB if given


def waits(step: Step, stages: int, q: int, ran: Collection[Step]) -> list[Step]:
    """Return the steps that a step waits for, among the existing ones; q: the slices of a sequence."""
    letter, stage, i = step
    if letter == "F":
        found = [("F", stage - 1, i)] if stage else []
        return found + ([("F", stage, i - 1)] if i % q else [])
    if letter == "W":
        return [("I", stage, i)]
    wanted = [("F", stage, i)] if stage == stages - 1 else [("I", stage + 1, i), ("B", stage + 1, i)]
    wanted += [("I", stage, i + 1), ("B", stage, i + 1)] if (i + 1) % q else []
    return [x for x in wanted if x in ran]


def length(slot: Slot, cost: Cost) -> Fraction:
    """Return the duration of a slot: for a pair of F and B the given one, if any, else the sum."""
    (_, stage, i), *second = slot
    if second and second[0][0] == "B" and ("FB", stage, i) in cost:
        return cost["FB", stage, i]
    return sum((cost[step] for step in slot), Fraction(0))


def play(
    orders: Sequence[Sequence[Slot]], stages: int, cost: Cost, q: int = 1
) -> dict[Step, tuple[Fraction, Fraction]]:
    """Return the start and end of every step. A result of another rank arrives after the latency of its stage and
    microbatch."""
    home = {step: rank for rank, slots in enumerate(orders) for slot in slots for step in slot}
    times: dict[Step, tuple[Fraction, Fraction]] = {}
    left, clock = [list(slots) for slots in orders], [Fraction(0)] * len(orders)
    moved = True
    while moved:
        moved = False
        for rank, slots in enumerate(left):
            if not slots:
                continue
            inputs = [x for step in slots[0] for x in waits(step, stages, q, home)]
            if any(x not in times for x in inputs):
                continue
            late = {x: cost["C", x[1], x[2]] if home[x] != rank else Fraction(0) for x in inputs}
            begin = max([clock[rank], *(times[x][1] + late[x] for x in inputs)])
            clock[rank] = begin + length(slots[0], cost)
            times |= dict.fromkeys(slots.pop(0), (begin, clock[rank]))
            moved = True
    return times


def peak(slots: Sequence[Slot], cost: Cost, at_input: Fraction) -> Fraction:
    """Return the most that a rank holds at an instant, in even stages: an F takes its M at once, the others free at
    their end."""
    now, most = Fraction(0), Fraction(0)
    for slot in slots:
        now += sum((cost["M", stage, i] for letter, stage, i in slot if letter == "F"), Fraction(0))
        most = max(most, now)
        for letter, stage, i in slot:
            share = {"F": Fraction(0), "I": at_input, "W": 1 - at_input, "B": Fraction(1)}[letter]
            now -= share * cost["M", stage, i]
        most = max(most, now)
    return most
