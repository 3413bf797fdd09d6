"""Runs torch 2.13's pipeline runtime on symbols, to find the values that it computes unless it stops.

Tensors are terms, messages are queues without tags, one per ordered pair of ranks (gloo). A rank goes through its
list: a send puts a term into a queue, a receive takes the next place of one, a compute waits until that place is
filled. The gradients of a stage at its REDUCE_GRAD are then compared with those of the undivided model.
It reads cells by itself and knows nothing of pipesched. Source: `_perform_action` in torch's ``schedules.py``.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Action = tuple[int, str, int]
Term = tuple[Any, ...]
Key = tuple[int, int]
"""(stage, microbatch)"""

SHARDED, GATHERING, WHOLE = range(3)


class Stop(Exception):
    """The runtime raises on one rank, and the others wait for the timeout."""


def actions(row: str) -> Iterator[Action]:
    """Yield the actions of a right row; overlap pairs run one part after the other."""
    for stage, kind, microbatch in re.findall(r"(\d+)([A-Z_]+?)(\d*)(?=[,;)]|$)", row):
        yield int(stage), kind, int(microbatch or -1)


def forward(stage: int, microbatch: int) -> Term:
    """Return the output of a stage in the undivided model."""
    return ("input", microbatch) if stage < 0 else ("F", stage, forward(stage - 1, microbatch))


def arriving(stage: int, microbatch: int, stages: int) -> Term:
    """Return the gradient that arrives at a stage in the undivided model."""
    if stage == stages - 1:
        return "loss", forward(stage, microbatch), microbatch
    return "B", forward(stage + 1, microbatch), arriving(stage + 1, microbatch, stages)


@dataclass
class Rank:
    """The state of one rank. `receives` name a place in a queue: (queue, position)."""

    stages: frozenset[int]
    at: int = 0
    losses: list[Term] = field(default_factory=list)
    outputs: dict[Key, Term] = field(default_factory=dict)
    arrived: dict[Key, Term] = field(default_factory=dict)
    local: dict[tuple[str, Key], Term] = field(default_factory=dict)
    receives: dict[tuple[str, Key], tuple[tuple[int, int], int]] = field(default_factory=dict)
    added: set[Key] = field(default_factory=set)
    gradients: dict[int, Counter[Term]] = field(default_factory=lambda: defaultdict(Counter))
    reduced: dict[int, Counter[Term]] = field(default_factory=dict)
    parameters: dict[int, int] = field(default_factory=lambda: defaultdict(int))


class Runtime:
    """A runtime of one training step: `owner` is the rank of each stage."""

    def __init__(self, text: str, owner: Sequence[int], microbatches: int, *, fsdp: bool) -> None:
        self.lists = [list(actions(row)) for row in text.splitlines()]
        self.owner, self.microbatches, self.fsdp = owner, microbatches, fsdp
        self.stages = len(owner)
        self.ranks = [Rank(frozenset(s for s in range(self.stages) if owner[s] == r)) for r in range(len(self.lists))]
        self.queues: dict[tuple[int, int], list[Term]] = defaultdict(list)
        self.posted: Counter[tuple[int, int]] = Counter()

    def wrong(self) -> str | None:
        """Return the reason why the step fails or trains something else, or None."""
        try:
            while any(self.step(rank) for rank in range(len(self.ranks))):
                pass
        except Stop as error:
            return str(error)
        if any(held.at < len(self.lists[r]) for r, held in enumerate(self.ranks)):
            return "hangs"
        if any(len(self.queues[key]) != self.posted[key] for key in self.queues | self.posted):
            return "a message is left over"
        if any(held.receives for held in self.ranks):
            return "a receive is left over"
        if any(state != SHARDED for held in self.ranks for state in held.parameters.values()):
            return "parameters stay whole"
        return next((f"gradients of stage {s}" for s in range(self.stages) if not self.right(s)), None)

    def right(self, stage: int) -> bool:
        """Return True if each microbatch added its gradient once, all of them before the one reduction."""
        expected = Counter((forward(stage, i), arriving(stage, i, self.stages)) for i in range(self.microbatches))
        held = self.ranks[self.owner[stage]]
        return held.gradients[stage] == expected and held.reduced.get(stage) == expected

    def step(self, number: int) -> bool:
        """Run the next action of a rank, unless it has to wait."""
        held = self.ranks[number]
        if held.at == len(self.lists[number]):
            return False
        stage, kind, microbatch = self.lists[number][held.at]
        if stage not in held.stages or (len(kind) == 1 and not microbatch < self.microbatches):
            raise Stop("an action of a stage or microbatch that is not here")
        if kind.startswith(("SEND", "RECV")):
            self.message(number, held, kind, (stage, microbatch))
        elif len(kind) > 1:
            self.whole_stage(held, kind, stage)
        elif not self.compute(held, kind, (stage, microbatch)):
            return False
        held.at += 1
        return True

    def message(self, number: int, held: Rank, kind: str, key: Key) -> None:
        other = key[0] + (1 if kind in ("SEND_F", "RECV_B") else -1)
        if not 0 <= other < self.stages or self.owner[other] == number:
            raise Stop("a message to nobody")
        peer = self.owner[other]
        if kind.startswith("RECV"):
            if (kind, key) in held.receives:
                raise Stop("received twice")
            held.receives[kind, key] = (peer, number), self.posted[peer, number]
            self.posted[peer, number] += 1
            return
        value = held.outputs.get(key) if kind == "SEND_F" else held.arrived.get(key)
        if value is None:
            raise Stop("sent before it is there")
        gradient = ("B", held.outputs[key], value)
        self.queues[number, peer].append(value if kind == "SEND_F" else gradient)

    def whole_stage(self, held: Rank, kind: str, stage: int) -> None:
        """REDUCE_GRAD; UNSHARD and RESHARD, which do nothing without FSDP."""
        if kind == "REDUCE_GRAD":
            if stage in held.reduced:
                raise Stop("reduced twice")
            held.reduced[stage] = held.gradients[stage].copy()
        elif self.fsdp:
            if held.parameters[stage] != (SHARDED if kind == "UNSHARD" else WHOLE):
                raise Stop("unsharded twice, or resharded before its use")
            held.parameters[stage] = GATHERING if kind == "UNSHARD" else SHARDED

    def compute(self, held: Rank, kind: str, key: Key) -> bool:
        if self.fsdp and held.parameters[key[0]] == SHARDED:
            raise Stop("computes on a sharded stage")
        if self.fsdp:
            held.parameters[key[0]] = WHOLE
        return self.weights(held, key) if kind == "W" else self.waiting(held, kind, key)

    def waiting(self, held: Rank, kind: str, key: Key) -> bool:
        """Return F, and the part of I and B that waits for a gradient; False if the message has not arrived."""
        done = held.outputs if kind == "F" else held.arrived
        if key in done or (kind != "F" and key not in held.outputs):
            raise Stop("runs twice, or without its forward")
        value = self.input(held, "F" if kind == "F" else "B", key)
        if value is None:
            return False
        stage, microbatch = key
        if kind == "F":
            done[key] = output = ("F", stage, value)
            held.local["F", (stage + 1, microbatch)] = output
            if stage == self.stages - 1:
                held.losses.append(("loss", output, microbatch))
            return True
        done[key] = value
        held.local["B", (stage - 1, microbatch)] = ("B", held.outputs[key], value)
        return self.weights(held, key) if kind == "B" else True

    def input(self, held: Rank, direction: str, key: Key) -> Term | None:
        """Return the input of a compute, or None if its message is under way."""
        stage, microbatch = key
        if direction == "F" and stage == 0:
            return "input", microbatch
        if direction == "B" and stage == self.stages - 1:
            if microbatch >= len(held.losses):
                raise Stop("the loss is not there")
            return held.losses[microbatch]
        if stage + (-1 if direction == "F" else 1) in held.stages:
            if (direction, key) not in held.local:
                raise Stop("the other stage of this rank has not run")
            return held.local[direction, key]
        if (f"RECV_{direction}", key) not in held.receives:
            raise Stop("computes before receiving")
        queue, place = held.receives[f"RECV_{direction}", key]
        if len(self.queues[queue]) <= place:
            return None
        del held.receives[f"RECV_{direction}", key]
        return self.queues[queue][place]

    def weights(self, held: Rank, key: Key) -> bool:
        if key in held.added or key not in held.arrived:
            raise Stop("weights twice, or before their gradient")
        held.added.add(key)
        held.gradients[key[0]][held.outputs[key], held.arrived[key]] += 1
        return True
