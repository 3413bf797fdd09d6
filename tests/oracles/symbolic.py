"""Runs a program on symbols: a tensor is a term, and a gradient is a multiset of terms.

    F(s, i)        y = f_s(x)                          x of stage 0 is the i-th input
    I(s, i)        dx = i_s(x, dy)                     dy of the last stage is the loss of y and the i-th target
    W(s, i)        adds w_s(x, dy) to the gradient of stage s;  B is I, then W
    REDUCE_GRAD    divides what is there by m
    SYNC           both copies of a stage get the sum of theirs
    STEP           the optimizer takes the gradients, and the weights are new ones

Messages go by their place on the channel, whatever they are called, and a buffer that nobody filled holds nothing. A
batch sends all of its messages when it begins, and is complete when all its receives are. A program is right if every
copy of every stage ends with the gradient of the undivided model. Channels are unbounded here; whether a program ends
under less is not asked.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from pipesched.model.ops import Instruction, Op
from pipesched.model.placement import Placement
from pipesched.model.schedule import Program

Term: TypeAlias = int
Gradient: TypeAlias = Counter[tuple[Term, int]]  # (what was added, how often it was divided by m) -> how many times
At: TypeAlias = tuple[int, int]  # stage, microbatch
NOTHING = 0


class Terms:
    """Each different term has a number: f_s(x) is found by ("F", s, version of the weights, x)."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Term] = {}

    def __call__(self, *parts: object) -> Term:
        return self._known.setdefault(parts, len(self._known) + 1)


@dataclass
class Rank:
    """The state of one rank: buffers by (stage, microbatch), gradients by stage."""

    arrived: dict[At, Term] = field(default_factory=dict)
    made: dict[At, Term] = field(default_factory=dict)
    arrived_back: dict[At, Term] = field(default_factory=dict)
    made_back: dict[At, Term] = field(default_factory=dict)
    saved: dict[At, tuple[Term, Term]] = field(default_factory=dict)
    stored: dict[At, tuple[Term, Term]] = field(default_factory=dict)
    gradient: dict[int, Gradient] = field(default_factory=lambda: defaultdict(Counter))
    taken: list[dict[int, Gradient]] = field(default_factory=list)
    missing: list[Instruction] | None = None  # outstanding receives of the batch that has begun
    at: int = 0


class Run:
    """A run of a program; all runs end alike, since every channel has one writer and one reader."""

    def __init__(self, program: Program) -> None:
        self.lists = [program.instructions(rank) for rank in range(program.ranks)]
        self.placement = program.placement
        self.table = program.placement.table
        self.terms = Terms()
        self.ranks = [Rank() for _ in self.lists]
        self.channels: dict[tuple[int, int, int], list[Term]] = defaultdict(list)
        while any(self._advance(rank) for rank in range(len(self.lists))):
            pass

    @property
    def finished(self) -> bool:
        return all(rank.at == len(listed) for rank, listed in zip(self.ranks, self.lists, strict=True))

    def _advance(self, here: int) -> bool:
        """Run a rank as far as possible; True if anything ran."""
        rank, before = self.ranks[here], self._progress(here)
        while rank.at < len(self.lists[here]):
            slot = list(self._slot(here))
            if len(slot) > 1 and not slot[0].op.compute:
                if not self._batch(here, slot):
                    break
                rank.at += len(slot)
                continue
            if not all(self._possible(here, x) for x in slot):
                break
            ends = [self._compute(here, x) for x in slot] if slot[0].op.compute else []
            if not ends:
                self._other(here, slot[0])
            for end in ends:
                end()
            rank.at += len(slot)
        return self._progress(here) != before

    def _progress(self, here: int) -> tuple[int, int]:
        missing = self.ranks[here].missing
        return self.ranks[here].at, -1 if missing is None else len(missing)

    def _batch(self, here: int, batch: list[Instruction]) -> bool:
        """Begin a batch, or continue it; True if it is complete."""
        rank = self.ranks[here]
        if rank.missing is None:
            for x in batch:
                if x.op.send:
                    self._other(here, x)
            rank.missing = [x for x in batch if x.op.receive]
        for x in list(rank.missing):
            if self._possible(here, x):
                self._other(here, x)
                rank.missing.remove(x)
        if rank.missing:
            return False
        rank.missing = None
        return True

    def _slot(self, here: int) -> Iterator[Instruction]:
        """Yield the next instruction, and the other part of an overlap pair, or the rest of a batch."""
        listed, at = self.lists[here], self.ranks[here].at
        yield listed[at]
        while listed[at].group >= 0 and at + 1 < len(listed) and listed[at + 1].group == listed[at].group:
            if not (listed[at + 1].op.send or listed[at + 1].op.receive):
                break
            at += 1
            yield listed[at]
        if listed[at].op.compute and at + 1 < len(listed) and listed[at + 1].op.compute and listed[at + 1].second:
            yield listed[at + 1]

    def _possible(self, here: int, x: Instruction) -> bool:
        if x.op.receive:
            return bool(self.channels[x.communicator, x.peer, here])
        return x.op is not Op.SYNC or self._meets(here, x.peer)

    def _meets(self, here: int, peer: int) -> bool:
        """Return True if the other rank is at the SYNC that pairs with ours."""
        if not 0 <= peer < len(self.ranks) or peer == here or self.ranks[peer].at >= len(self.lists[peer]):
            return False
        there = self.lists[peer][self.ranks[peer].at]
        return there.op is Op.SYNC and there.peer == here

    def _compute(self, here: int, x: Instruction) -> Done:
        """Take the inputs of a compute now; its result is stored when the slot ends."""
        rank, key = self.ranks[here], (x.stage, x.microbatch)
        version = len(rank.taken)
        if x.op is Op.F:
            first = self.terms("input", x.microbatch)
            source = first if x.stage == 0 else rank.arrived.get(key, NOTHING)
            made = self.terms("F", x.stage, version, source) if source else NOTHING
            return Done(self, here, x, source, made)
        if x.op is Op.W:
            return Done(self, here, x, *rank.stored.pop(key, (NOTHING, NOTHING)))
        source, output = rank.saved.pop(key, (NOTHING, NOTHING))
        last = x.stage == self.placement.stages - 1
        back = self.terms("loss", x.microbatch, output) if last else rank.arrived_back.get(key, NOTHING)
        return Done(self, here, x, source, back if source else NOTHING)

    def _other(self, here: int, x: Instruction) -> None:
        rank, key = self.ranks[here], (x.stage, x.microbatch)
        if x.op.send:
            made = rank.made if x.op is Op.SEND_F else rank.made_back
            self.channels[x.communicator, here, x.peer].append(made.get(key, NOTHING))
        elif x.op.receive:
            arrived = rank.arrived if x.op is Op.RECV_F else rank.arrived_back
            arrived[key] = self.channels[x.communicator, x.peer, here].pop(0)
        elif x.op is Op.REDUCE_GRAD:
            divided = {(term, times + 1): n for (term, times), n in rank.gradient[x.stage].items()}
            rank.gradient[x.stage] = Counter(divided)
        elif x.op is Op.SYNC:
            self._sync(here, x)
        elif x.op is Op.STEP:
            rank.taken.append(dict(rank.gradient))
            rank.gradient = defaultdict(Counter)

    def _sync(self, here: int, x: Instruction) -> None:
        """Both ranks are here: both get the sum, and the other one continues too."""
        other = self.ranks[x.peer]
        there = self.lists[x.peer][other.at]
        total = self.ranks[here].gradient[x.stage] + other.gradient[there.stage]
        self.ranks[here].gradient[x.stage], other.gradient[there.stage] = Counter(total), Counter(total)
        other.at += 1


@dataclass(frozen=True)
class Done:
    """A compute whose inputs were taken; a call stores its outputs."""

    run: Run
    here: int
    x: Instruction
    left: Term  # F: the input; else the saved input
    right: Term  # F: the output; else the gradient of the output

    def __call__(self) -> None:
        rank, x, key = self.run.ranks[self.here], self.x, (self.x.stage, self.x.microbatch)
        if x.op is Op.F:
            rank.made[key], rank.saved[key] = self.right, (self.left, self.right)
            self._hand_over(rank.arrived, x.stage + 1, self.right)
        if x.op is Op.I:
            rank.stored[key] = self.left, self.right
        if x.op is Op.I or x.op is Op.B:
            rank.made_back[key] = self.run.terms("I", x.stage, self.left, self.right) if self.right else NOTHING
            self._hand_over(rank.arrived_back, x.stage - 1, rank.made_back[key])
        if x.op is Op.W or x.op is Op.B:
            added = self.run.terms("W", x.stage, self.left, self.right) if self.right else NOTHING
            rank.gradient[x.stage][added, 0] += 1

    def _hand_over(self, arrived: dict[At, Term], stage: int, term: Term) -> None:
        """Give a value to a neighbouring stage on the same rank without a message."""
        table, microbatch = self.run.table, self.x.microbatch
        inside = 0 <= stage < table.shape[0] and 0 <= microbatch < table.shape[1]
        if inside and table[stage, microbatch] == self.here:
            arrived[stage, microbatch] = term


def undivided(terms: Terms, placement: Placement) -> dict[int, Gradient]:
    """Return the gradient of every stage if one device runs one microbatch after the other, divided by m once."""
    stages = placement.stages
    gradients: dict[int, Gradient] = {stage: Counter() for stage in range(stages)}
    for microbatch in range(placement.microbatches):
        values = [terms("input", microbatch)]
        for stage in range(stages):
            values.append(terms("F", stage, 0, values[-1]))
        back = terms("loss", microbatch, values[-1])
        for stage in reversed(range(stages)):
            gradients[stage][terms("W", stage, values[stage], back), 1] += 1
            back = terms("I", stage, values[stage], back)
    return gradients


def right(program: Program) -> bool:
    """Return True if the program finishes, and every rank steps once, with the gradients of the undivided model.

    A program without any STEP leaves that to its caller: then the gradients at the end of the lists count. A program
    without a backward is right if every microbatch comes out of the last stage.
    """
    run = Run(program)
    if not run.finished:
        return False
    if all(x.op not in (Op.I, Op.W, Op.B) for listed in run.lists for x in listed):
        return _all_come_out(run)
    steps = any(rank.taken for rank in run.ranks)
    if any(len(rank.taken) != int(steps) or (steps and _some(rank.gradient)) for rank in run.ranks):
        return False
    found = [rank.taken[0] if steps else rank.gradient for rank in run.ranks]
    expected = undivided(run.terms, run.placement)
    return all(_some(found[rank]) == _held(run.placement, rank, expected) for rank in range(len(found)))


def _some(gradients: dict[int, Gradient]) -> dict[int, Gradient]:
    return {stage: +gradient for stage, gradient in gradients.items() if +gradient}


def _held(placement: Placement, rank: int, gradients: dict[int, Gradient]) -> dict[int, Gradient]:
    """Return the final state of a rank: the gradients of the stages of which it holds a copy."""
    return {stage: gradient for stage, gradient in gradients.items() if rank in placement.rank_of[:, stage].tolist()}


def _all_come_out(run: Run) -> bool:
    last = run.placement.stages - 1
    for microbatch in range(run.placement.microbatches):
        term = run.terms("input", microbatch)
        for stage in range(last + 1):
            term = run.terms("F", stage, 0, term)
        home = int(run.table[last, microbatch])
        if run.ranks[home].made.get((last, microbatch)) != term:
            return False
    return True
