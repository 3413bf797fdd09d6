"""Simulates a rank's engines tick by tick, and orders of slots in sweeps, to find the times of parts on engines.

Shares no code with pipesched: parts are triples (name, time, engine), slots are lists of (letter, stage, microbatch).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import TypeAlias

Part: TypeAlias = tuple[str, Fraction, str]
Slot: TypeAlias = Sequence[tuple[str, int, int]]


def shortest(a: Sequence[tuple[int, str]], b: Sequence[tuple[int, str]]) -> int:
    """Return the least time of two chains by breadth: at every tick each goes on, begins its next part, or waits."""
    first, second = (tuple(x for x in chain if x[0]) for chain in (a, b))

    @cache
    def steps(i: int, left: int, on: Sequence[tuple[int, str]]) -> tuple[tuple[int, int, str], ...]:
        """The moves of a chain in a tick: the next state, and the engine that it uses."""
        if left:
            return ((i, left - 1, on[i - 1][1]),)
        idle = ((i, 0, ""),)
        return idle if i == len(on) else (*idle, (i + 1, on[i][0] - 1, on[i][1]))

    states, time = {(0, 0, 0, 0)}, 0
    while (len(first), 0, len(second), 0) not in states:
        time += 1
        states = {
            (i, u, j, v)
            for x, y, z, w in states
            for i, u, one in steps(x, y, first)
            for j, v, other in steps(z, w, second)
            if not one or one != other
        }
    return time


def queued(back: Sequence[Part], weights: Sequence[Part], forward: Sequence[Part]) -> Fraction:
    """Return the time of a backward beside a forward, all layers written out, if engines serve queues.

    Issued are the k-th parts of both, then the weights of the former.

    back, weights: the same number of layers; a part of `weights` has the name and the layer of one of `back`.
    """
    queue: list[tuple[str, int, Part]] = []
    for k in range(max(len(forward), len(back))):
        if k < len(back):
            queue.append(("I", k, back[k]))
        if k < len(forward):
            queue.append(("F", k, forward[k]))
        if k < len(back):
            queue += [("W", k, part) for part in weights if part[0] == back[k][0]]
    ends: dict[tuple[str, int], Fraction] = {}
    engines: dict[str, Fraction] = {}
    for letter, k, (_, time, engine) in queue:
        needs = ends["I", k] if letter == "W" else ends.get((letter, k - 1), Fraction(0))
        ends[letter, k] = engines[engine] = max(engines.get(engine, Fraction(0)), needs) + time
    return max(engines.values(), default=Fraction(0))


def took(slot: Slot, of: Callable[[str, int], tuple[int, Sequence[Part]]]) -> Fraction:
    """Return the time of a slot. of: the layers of a letter on a stage, and the parts of one of them."""

    def chain(letter: str, stage: int) -> list[Part]:
        layers, parts = of(letter, stage)
        return [part for _ in range(layers) for part in parts]

    letters = "".join(letter for letter, _, _ in slot)
    if letters in ("B", "FB"):
        stage = slot[-1][1]
        forward = chain("F", slot[0][1]) if letters == "FB" else []
        return queued(chain("I", stage), of("W", stage)[1], forward)
    if len(slot) == 1:
        return sum((time for _, time, _ in chain(*slot[0][:2])), Fraction(0))
    one, other = ([(time, engine) for _, time, engine in chain(letter, stage)] for letter, stage, _ in slot)
    fine = 1
    for time, _ in (*one, *other):
        while (time * fine).denominator > 1:
            fine += 1
    return Fraction(shortest(*([(int(t * fine), e) for t, e in row] for row in (one, other))), fine)


def swept(
    lists: Sequence[Sequence[Slot]],
    stages: int,
    time: Callable[[Slot], Fraction],
    message: Callable[[int], Fraction] = lambda _: Fraction(0),
) -> list[list[Fraction]]:
    """Return the end of every slot, by rank, by sweeping over the ranks until all have run.

    lists: by rank. message: what a message from a stage takes, if it goes to another rank.
    """
    done: dict[tuple[str, int, int], tuple[Fraction, int]] = {}
    at = [0] * len(lists)
    ends: list[list[Fraction]] = [[] for _ in lists]
    moved = True
    while moved:
        moved = False
        for rank, slots in enumerate(lists):
            while at[rank] < len(slots):
                needs = []
                for letter, s, i in slots[at[rank]]:
                    if letter == "F":
                        needs += [("F", s - 1, i)] if s else []
                    elif letter != "W":
                        needs.append(("F", s, i) if s == stages - 1 else ("G", s + 1, i))
                if any(need not in done for need in needs):
                    break
                ready = [done[x][0] + (message(x[1]) if done[x][1] != rank else 0) for x in needs]
                begin = max([ends[rank][-1] if ends[rank] else Fraction(0), *ready])
                ends[rank].append(begin + time(slots[at[rank]]))
                for letter, s, i in slots[at[rank]]:
                    done["G" if letter in "BI" else letter, s, i] = ends[rank][-1], rank
                at[rank], moved = at[rank] + 1, True
    assert all(n == len(slots) for n, slots in zip(at, lists, strict=True))
    return ends
