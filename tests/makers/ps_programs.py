"""Random programs in which only O and L name their microbatches, and the orders of these programs.

A program is the record of a run: at each step some rank writes a word for an operation that can run next on it, a
letter with its chunk, a bare W, `drain W`, or an overlap. So every order of a rank comes up, and nothing waits in a
cycle.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

Step: TypeAlias = tuple[str, int, int]  # letter, stage, microbatch
Slot: TypeAlias = tuple[Step, ...]


@dataclass
class Written:
    """homes: by route, then by stage, the rank. first: by route, the microbatches that take it. slots: by rank.

    named: whether some operation names its microbatch.
    """

    homes: list[list[int]]
    first: list[tuple[int, int]]
    ranks: int
    words: list[list[str]] = field(default_factory=list)
    slots: list[list[Slot]] = field(default_factory=list)
    named: bool = False

    @property
    def stages(self) -> int:
        return len(self.homes[0])

    @property
    def microbatches(self) -> int:
        return self.first[-1][1]

    def home(self, stage: int, microbatch: int) -> int:
        return self.homes[self.route(microbatch)][stage]

    def route(self, microbatch: int) -> int:
        return next(route for route, (low, high) in enumerate(self.first) if low <= microbatch < high)

    def chunks(self, rank: int) -> list[tuple[int, int]]:
        """Return (route, stage) of each chunk of a rank."""
        return [(route, s) for route, row in enumerate(self.homes) for s, home in enumerate(row) if home == rank]

    def text(self, *lines: str) -> str:
        """Return the file, with more lines after its placement."""
        named = [f"route r{n}: " if len(self.homes) > 1 else "" for n in range(len(self.homes))]
        said = ["schedule random(p, m)"]
        for route, row in enumerate(self.homes):
            taken = f" for microbatch {self.first[route][0]} .. {self.first[route][1]}" if len(self.homes) > 1 else ""
            said += [f"{named[route]}stage {s} on rank {home}{taken}" for s, home in enumerate(row)]
        programs = [f"rank {rank} {{ {'  '.join(words)} }}" for rank, words in enumerate(self.words)]
        return "\n".join([*said, *lines, *programs]) + "\n"


class Writer:
    """The writer of a program."""

    def __init__(
        self, seed: int, *, ranks: int = 4, microbatches: int = 4, recompute: float = 0, offload: float = 0
    ) -> None:
        self.rng = rng = random.Random(seed)
        p, m = rng.randint(1, ranks), rng.randint(1, microbatches)
        row = rng.choice(
            ([*range(p)], [*range(p)] * rng.randint(1, 2), [*range(p), *reversed(range(p))], [*range(p), *_any(rng, p)])
        )
        routes = 2 if m > 1 and rng.random() < 0.3 else 1
        cut = m if routes == 1 else rng.randint(1, m - 1)
        self.made = Written([row, [p - 1 - x for x in row]][:routes], [(0, cut), (cut, m)][:routes], p)
        self.made.words, self.made.slots = [[] for _ in range(p)], [[] for _ in range(p)]
        self.split = [[rng.random() < 0.5 for _ in row] for _ in range(routes)]
        self.again = [[rng.random() < recompute for _ in row] for _ in range(routes)]
        self.tidy = not offload or rng.random() < 0.5  # no O or L names its microbatch: all of a stage, or none
        self.away = set[tuple[int, int]]()
        for route, (low, high) in enumerate(self.made.first if offload else []):
            for s in (s for s in range(len(row)) if not self.again[route][s]):
                chosen = [rng.random() < offload for _ in range(low, high)]
                self.away |= {(s, i) for i in range(low, high) if chosen[0 if self.tidy else i - low]}
        self.pairs = rng.choice((0, 0.5, 1))
        self.done: set[Step] = set()
        self.order: list[Step] = []
        self.pending: list[list[tuple[int, Step]]] = [[] for _ in range(p)]  # by rank: chunk, and its I without a W

    def write(self) -> Written:
        ranks = list(range(self.made.ranks))
        while True:
            able = [(rank, self.possible(rank)) for rank in ranks]
            able = [(rank, ready) for rank, ready in able if ready or self.pending[rank]]
            if not able:
                return self.made
            rank, ready = self.rng.choice(able)
            if self.pending[rank] and (not ready or self.rng.random() < 0.4):
                self.weigh(rank)
            else:
                self.put(rank, self.rng.choice(ready), ready)

    def possible(self, rank: int) -> list[tuple[int, Step]]:
        """Return the possible next operations of each chunk: an F, a backward, an R; an O and an L of any
        microbatch."""
        found = []
        for chunk, (route, stage) in enumerate(self.made.chunks(rank)):
            low, high = self.made.first[route]
            back = "I" if self.split[route][stage] else "B"
            for letter in ("F", back, *(["R"] if self.again[route][stage] else [])):
                i = next((i for i in range(low, high) if (letter, stage, i) not in self.done), high)
                if i < high and self.ready(route, (letter, stage, i)):
                    found.append((chunk, (letter, stage, i)))
            for i in (i for i in range(low, high) if (stage, i) in self.away):
                for letter, before in (("O", "F"), ("L", "O")):
                    step = letter, stage, i
                    able = (before, stage, i) in self.done and step not in self.done
                    if able and not (self.tidy and self.named(step)):
                        found.append((chunk, step))
        return found

    def ready(self, route: int, step: Step) -> bool:
        letter, stage, i = step
        if letter == "F":
            return stage == 0 or ("F", stage - 1, i) in self.done
        if ("F", stage, i) not in self.done or letter == "R":
            return letter == "R" and ("F", stage, i) in self.done
        if self.again[route][stage] and ("R", stage, i) not in self.done:
            return False
        if (stage, i) in self.away and ("L", stage, i) not in self.done:
            return False
        return stage == self.made.stages - 1 or any((x, stage + 1, i) in self.done for x in "IB")

    def put(self, rank: int, one: tuple[int, Step], ready: list[tuple[int, Step]]) -> None:
        both = [one]
        if one[1][0] in "FIB" and self.rng.random() < self.pairs:
            wanted = "IB" if one[1][0] == "F" else "F"
            alike = [x for x in ready if x[1][0] in wanted and x[1][2] != one[1][2]]
            both += [self.rng.choice(alike)] if alike else []
        both.sort(key=lambda x: x[1][0] != "F")
        words = [f"{step[0]}[{chunk}]{self.named(step)}" for chunk, step in both]
        self.made.named |= words[0].endswith(")")
        self.made.words[rank].append(words[0] if len(both) == 1 else f"overlap({', '.join(words)})")
        self.made.slots[rank].append(tuple(step for _, step in both))
        for chunk, step in both:
            self.done.add(step)
            self.order.append(step)
            if step[0] == "I":
                self.pending[rank].append((chunk, step))

    def named(self, step: Step) -> str:
        """Return the microbatch of an O or L, unless it is the microbatch of the oldest pending F or O of its chunk."""
        return "" if step[0] not in "OL" or self.oldest(step) == step[2] else f"({step[2]})"

    def oldest(self, step: Step) -> int:
        """Return the microbatch that the letter takes without a name."""
        return self.waiting(step)[0]

    def waiting(self, step: Step) -> list[int]:
        """Return the pending F or O of its chunk, oldest first."""
        letter, stage, i = step
        before = "O" if letter == "L" else "F"
        return [
            x[2]
            for x in self.order
            if x[:2] == (before, stage) and (letter, *x[1:]) not in self.done
            if self.made.route(x[2]) == self.made.route(i)
        ]

    def weigh(self, rank: int) -> None:
        """Run a W: the oldest, the oldest of a chunk, or all."""
        pending, chance = self.pending[rank], self.rng.random()
        chunk = self.rng.choice(pending)[0]
        taken, word = [pending[0]], "W"
        if chance < 0.2:
            taken, word = list(pending), "drain W"
        elif chance < 0.6:
            taken, word = [next(x for x in pending if x[0] == chunk)], f"W[{chunk}]"
        self.made.words[rank].append(word)
        for entry in taken:
            pending.remove(entry)
            self.made.slots[rank].append((("W", *entry[1][1:]),))


def _any(rng: random.Random, ranks: int) -> Iterator[int]:
    yield from (rng.randrange(ranks) for _ in range(rng.randint(0, 3)))


def program(seed: int, *, recompute: float = 0, offload: float = 0) -> Written:
    """Return the program of a seed. recompute: number of stages that recompute; offload: number of offloaded
    activations of the others.
    """
    return Writer(seed, recompute=recompute, offload=offload).write()
