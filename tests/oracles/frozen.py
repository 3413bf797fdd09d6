"""An independent simulator of programs with frozen stages, recomputation and offloading; it uses only names, sets,
fractions and repeated sweeps.

A step is named by its letter, its stage and its microbatch. A stage behind a trained one passes on a gradient;
operations that the others do not need are struck from the lists by name, and the rest is played:

    F(s)         waits for F(s - 1)
    I(s), B(s)   wait for I or B of s + 1, the last stage for its own F
    W(s)         waits for its own I
    R(s)         waits for its own F
    O(s)         is over when the copy out is, which began when its F was over and the copy before it
    L(s)         begins the copy in, which I(s) and B(s) wait for, behind the copy before it
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

Step: TypeAlias = tuple[str, int, int]
Slot: TypeAlias = tuple[Step, ...]
Home: TypeAlias = Mapping[tuple[int, int], int]  # the rank of a stage and a microbatch


def letters_of(stage: int, frozen: Collection[int]) -> str:
    """Return the kinds that a stage runs: trained, frozen but passing a gradient on, or without a gradient."""
    if stage not in frozen:
        return "FROLIWB"
    return "FROLI" if any(before not in frozen for before in range(stage)) else "F"


def left_of(slots: Sequence[Slot], frozen: Collection[int]) -> list[Slot]:
    """Return a rank's list without unneeded operations; a half-needed B is an I."""
    kept = []
    for slot in slots:
        steps = []
        for letter, stage, i in slot:
            able = letters_of(stage, frozen)
            if letter in able:
                steps.append((letter, stage, i))
            elif letter == "B" and "I" in able:
                steps.append(("I", stage, i))
        if steps:
            kept.append(tuple(steps))
    return kept


@dataclass(frozen=True)
class Played:
    """times: start and end of every step that ran. messages: from stage, to stage, microbatch of each. copied: end of
    the copy of each O and L.
    """

    times: Mapping[Step, tuple[Fraction, Fraction]]
    messages: frozenset[tuple[int, int, int]]
    copied: Mapping[Step, Fraction]

    @property
    def makespan(self) -> Fraction:
        return max((end for _, end in self.times.values()), default=Fraction(0))


def needed(step: Step, stages: int, ran: Collection[Step]) -> list[Step]:
    """Return the steps that a step waits for, among the existing ones."""
    letter, stage, i = step
    if letter == "F":
        return [("F", stage - 1, i)] if stage else []
    if letter in "WROL":
        return [("I" if letter == "W" else "F", stage, i)]
    if stage == stages - 1:
        return [("F", stage, i)]
    return [x for x in (("I", stage + 1, i), ("B", stage + 1, i)) if x in ran]


def play(orders: Sequence[Sequence[Slot]], home: Home, stages: int, cost: Mapping[str, Sequence[Fraction]]) -> Played:
    """cost: by letter and stage; C is the latency of a stage's messages, FB of a pair by the stage of its F."""
    ran = {step for slots in orders for slot in slots for step in slot}
    free: dict[tuple[int, str], Fraction] = {}  # by rank and way, when its engine is
    copied: dict[Step, Fraction] = {}  # by O and L, when its copy is over
    times: dict[Step, tuple[Fraction, Fraction]] = {}
    messages = set()
    left, clock = [list(slots) for slots in orders], [Fraction(0)] * len(orders)
    moved = True
    while moved:
        moved = False
        for rank, slots in enumerate(left):
            if not slots:
                continue
            far = [(x, step) for step in slots[0] for x in needed(step, stages, ran) if home[x[1:]] != rank]
            if any(x not in times for x, _ in far):
                continue
            messages |= {(x[1], step[1], x[2]) for x, step in far}
            awaited = [
                copied.get(("O" if x[0] == "O" else "L", *x[1:]), Fraction(0)) for x in slots[0] if x[0] in "OIB"
            ]
            begin = max([clock[rank], *awaited, *(times[x][1] + cost["C"][x[1]] for x, _ in far)])
            clock[rank] = begin + length(slots[0], cost)
            for letter, stage, i in slots[0]:
                way = "O" if letter == "F" else "L"
                if letter in "FL" and (way, stage, i) in ran:
                    free[rank, way] = max(free.get((rank, way), Fraction(0)), clock[rank]) + cost[way][stage]
                    copied[way, stage, i] = free[rank, way]
            times |= dict.fromkeys(slots.pop(0), (begin, clock[rank]))
            moved = True
    return Played(times, frozenset(messages), copied)


def length(slot: Slot, cost: Mapping[str, Sequence[Fraction]]) -> Fraction:
    if len(slot) == 2 and slot[1][0] == "B" and "FB" in cost:
        return cost["FB"][slot[0][1]]
    return sum((cost[letter][stage] for letter, stage, _ in slot if letter not in "OL"), Fraction(0))


def peak(
    slots: Sequence[Slot],
    frozen: Collection[int],
    at_input: Fraction,
    sizes: Sequence[Fraction],
    small: Sequence[Fraction],
) -> Fraction:
    """Return the most that a rank holds, in even stages: an F takes at once; everything else is freed when its slot
    ends.

    A stage without a backward frees its memory after F, and so does, but for a small part, a stage with R, which takes
    it again at once. A stage with frozen weights frees all at its I.
    """
    again = {(stage, i) for slot in slots for letter, stage, i in slot if letter == "R"}
    now, most = Fraction(0), Fraction(0)
    for slot in slots:
        for letter, stage, _ in slot:
            taken = {"F": sizes[stage], "R": sizes[stage] - small[stage], "L": sizes[stage]}
            now += taken.get(letter, Fraction(0))
        most = max(most, now)
        for letter, stage, i in slot:
            able = letters_of(stage, frozen)
            dropped = 1 - small[stage] / sizes[stage] if (stage, i) in again and sizes[stage] else Fraction(0)
            freed = {
                "F": Fraction(1) if able == "F" else dropped,
                "R": Fraction(0),
                "L": Fraction(0),
                "O": Fraction(1),
                "I": Fraction(1) if "W" not in able else at_input,
                "W": 1 - at_input,
                "B": Fraction(1),
            }
            now -= freed[letter] * sizes[stage]
        most = max(most, now)
    return most


def host(slots: Sequence[Slot], sizes: Sequence[Fraction]) -> Fraction:
    """Return the most in host memory, from an O to its L."""
    away, most = dict[tuple[int, int], Fraction](), Fraction(0)
    for letter, stage, i in (step for slot in slots for step in slot):
        if letter == "O":
            away[stage, i] = sizes[stage]
        elif letter == "L":
            del away[stage, i]
        most = max(most, sum(away.values(), Fraction(0)))
    return most
