"""Simulates rules that determine an order, and computes the times of an order in sweeps that repeat until nothing
changes.

    F(s)         waits for F of all that s reads
    I(s), B(s)   wait for I or B of all that read s; of the last stage, for its own F
    W, R, O      wait for I, F, F of their own stage; L for its O

A message from another rank arrives after the latency of the stage that made it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tests.oracles.ps_interpreter import GRADIENT, Model, Rank, Refused, Slot, Step

ZERO = Fraction(0)


def inputs(model: Model, step: Step) -> list[Step]:
    """Return the inputs of a step, with the letter G for the I or B of a stage."""
    letter, s, i = step
    if letter == "F":
        return [("F", t, i) for t in model.reads[s] if t >= 0]
    if letter in GRADIENT:
        return [("G", t, i) for t in model.readers(s)] or [("F", s, i)]
    return [({"W": "G", "L": "O"}.get(letter, "F"), s, i)]


def kind(step: Step) -> Step:
    return ("G" if step[0] in GRADIENT else step[0], *step[1:])


def length(model: Model, slot: Slot) -> Fraction:
    if len(slot) == 2 and slot[1][0] == "B" and "FB" in model.given:
        return model.cost["FB", slot[0][1], slot[0][2]]
    return sum((model.cost[step] for step in slot if step[0] not in "OL"), ZERO)


# Orders by a rule


def clocked(model: Model, ranks: Sequence[Rank]) -> None:
    """Complete the lists of all ranks, on one clock. Raises Refused: PS229, operations are left and none can run."""
    begun, free = [0] * len(ranks), [ZERO] * len(ranks)
    lists = [len(rank.done) for rank in ranks]
    made: dict[Step, Fraction] = {}
    holds: list[dict[int, Fraction]] = [dict.fromkeys(range(len(rank.chunks)), ZERO) for rank in ranks]
    for rank, mine in zip(ranks, holds, strict=True):
        rank.held = lambda *c, mine=mine: model.unit * (mine[c[0]] if c else sum(mine.values(), ZERO))
    now = ZERO

    def come(rank: Rank, x: tuple[str, int, int]) -> bool:
        letter, chunk, i = x
        stage = rank.chunks[chunk][1]
        wanted = model.runs(letter, stage)
        return all(
            t in made and made[t] + (ZERO if model.home(t[1], i) == rank.rank else model.cost["C", t[1], i]) <= now
            for t in (inputs(model, (wanted, stage, i)) if wanted else ())
        )

    def able(rank: Rank) -> int:
        """Return the number of the next words that can begin; a line of the rule is written when it can."""
        at = begun[rank.rank]
        if at == len(rank.done):
            for letter, chunk, when in rank.lines:
                if chunk is None and letter == "W":
                    found = rank.waiting["W"][0] if rank.waiting["W"] else None
                else:
                    of = chunk or 0
                    i = rank.upcoming(letter, of)
                    found = None if i is None else (of, i)
                if found is not None and come(rank, (letter, *found)) and (when is None or when()):
                    rank.put(letter, *found, named=False)
                    break
            else:
                return 0
        size = 2 if at + 1 < len(rank.done) and rank.joined[at + 1] else 1
        return size if all(come(rank, x) for x in rank.done[at : at + size]) else 0

    while True:
        moved = True
        while moved:
            moved = False
            for rank in ranks:
                count = able(rank) if free[rank.rank] <= now else 0
                if count:
                    begin(model, rank, begun[rank.rank], count, now, free, made, holds[rank.rank])
                    begun[rank.rank] += count
                    moved = True
        later = [x for x in free if x > now]
        later += [made[x] + model.cost["C", x[1], x[2]] for x in made if made[x] + model.cost["C", x[1], x[2]] > now]
        if not later:
            break
        now = min(later)
    for rank, listed in zip(ranks, lists, strict=True):
        ended = begun[rank.rank] >= listed
        for letter, chunk, _ in rank.lines:
            waiting = (
                rank.waiting["W"] if letter == "W" and chunk is None else rank.upcoming(letter, chunk or 0) is not None
            )
            ended &= not waiting
        if not ended:
            raise Refused("PS229")


def begin(
    model: Model,
    rank: Rank,
    at: int,
    count: int,
    now: Fraction,
    free: list[Fraction],
    made: dict[Step, Fraction],
    holds: dict[int, Fraction],
) -> None:
    slot = []
    for letter, chunk, i in rank.done[at : at + count]:
        stage = rank.chunks[chunk][1]
        wanted = model.runs(letter, stage)
        if wanted:
            slot.append((wanted, stage, i))
            holds[chunk] += change(model, (wanted, stage, i), ZERO) * model.cost["M", stage, i]
    free[rank.rank] = now + length(model, tuple(slot))
    for step in slot:
        made[kind(step)] = free[rank.rank]


def backfilled(model: Model, lists: Sequence[Sequence[Slot]]) -> list[list[Slot]]:
    """Return the lists with every slot moved to the first start that fits, tried one by one, in the order of the list.

    A start fits if no input comes later, no earlier slot of the list runs then, and the memory at every later instant,
    with this slot's F, is at most the peak of the lists. Lists that wait for each other stay as they are.
    """
    most = max(peak(model, slots, ZERO, backward=True) for slots in lists)
    put: list[list[tuple[Fraction, Fraction, Slot]]] = [[] for _ in lists]
    made: dict[Step, Fraction] = {}

    def held(rank: int, at: Fraction) -> Fraction:
        total = ZERO
        for start, end, slot in put[rank]:
            for step in slot:
                size = change(model, step, ZERO) * model.cost["M", step[1], step[2]]
                total += size if (start if step[0] == "F" else end) <= at else ZERO
        return model.unit * total

    def fits(rank: int, slot: Slot, start: Fraction) -> bool:
        end = start + length(model, slot)
        if any(start < other and one < end for one, other, _ in put[rank]):
            return False
        taken = [max(ZERO, change(model, x, ZERO)) * model.cost["M", x[1], x[2]] for x in slot]
        instants = {start, *(x for one, other, _ in put[rank] for x in (one, other) if x > start)}
        return not any(taken) or all(held(rank, x) + model.unit * sum(taken) <= most for x in instants)

    while any(len(done) < len(slots) for done, slots in zip(put, lists, strict=True)):
        before = len(made)
        for rank, slots in enumerate(lists):
            while len(put[rank]) < len(slots):
                slot = slots[len(put[rank])]
                needed = [x for step in slot for x in inputs(model, step)]
                if any(x not in made for x in needed):
                    break
                ready = [
                    made[x] + (ZERO if model.home(x[1], x[2]) == rank else model.cost["C", x[1], x[2]]) for x in needed
                ]
                first = max(ready, default=ZERO)
                tried = sorted({first, *(end for _, end, _ in put[rank] if end > first)})
                start = next(x for x in tried if fits(rank, slot, x))
                put[rank].append((start, start + length(model, slot), slot))
                made |= {kind(step): put[rank][-1][1] for step in slot}
        if len(made) == before:
            return [list(slots) for slots in lists]
    return [[slot for _, _, slot in sorted(done, key=lambda x: x[:2])] for done in put]


def change(model: Model, step: Step, at_input: Fraction) -> Fraction:
    """Return the memory that an F takes and backwards free; a stage without a backward keeps nothing."""
    letter, stage, _ = step
    if not model.runs("I", stage):
        return ZERO
    if stage in model.frozen:
        at_input = Fraction(1)
    return {"F": Fraction(1), "I": -at_input, "W": at_input - 1, "B": Fraction(-1)}.get(letter, ZERO)


# Outcome of an order


@dataclass
class Played:
    """times: start and end of every step. messages: kind, from stage, to stage, microbatch."""

    times: Mapping[Step, tuple[Fraction, Fraction]]
    messages: set[tuple[str, int, int, int]]


def wrong(model: Model, slots: Sequence[Sequence[Slot]]) -> str | None:
    """Return the faults of the lists themselves: a missing or repeated operation, or one before its input."""
    every = [(step, rank) for rank, list_ in enumerate(slots) for slot in list_ for step in slot]
    backward = any(step[0] in "IWB" for step, _ in every)
    if any(step[0] == "R" and model.cost["K", *step[1:]] > model.cost["M", *step[1:]] for step, _ in every):
        return "K"
    ran: dict[Step, int] = {}
    for step, rank in every:
        if step in ran:
            return "twice"
        ran[step] = rank
    for s in range(model.stages):
        for i in range(model.microbatches):
            has = {letter for letter in "FIWBROL" if (letter, s, i) in ran}
            if has - {*"ROL"} not in allowed(model, s, backward=backward):
                return "missing or twice"
            if ("L" in has) != ("O" in has) or {"R", "O"} <= has or (has & {*"ROL"} and not has & {*"IB"}):
                return "copies"
    for rank in range(model.ranks):
        before: set[Step] = set()
        for slot in slots[rank]:
            if len(slot) == 2 and slot[0][2] == slot[1][2]:
                return "overlap"
            for step in slot:
                needed = [*inputs(model, step), *along(model, step)]
                if step[0] in GRADIENT:
                    needed += [(x, *step[1:]) for x in "FRL" if (x, *step[1:]) in ran]
                if any(model.home(*x[1:]) == rank and x not in before for x in needed):
                    return "order"
            before |= {kind(step) for step in slot}
    return None


def allowed(model: Model, stage: int, *, backward: bool) -> list[set[str]]:
    """Return the sets of F, I, W, B that a stage may run for a microbatch."""
    if not backward or not model.runs("I", stage):
        return [{"F"}]
    return [{"F", "I"}] if stage in model.frozen else [{"F", "B"}, {"F", "I", "W"}]


def along(model: Model, step: Step) -> Iterator[Step]:
    """Yield the inputs of a slice from its neighbours in the sequence."""
    letter, s, i = step
    if letter == "F" and i % model.slices:
        yield ("F", s, i - 1)
    if letter in GRADIENT and (i + 1) % model.slices:
        yield ("G", s, i + 1)


def play(model: Model, slots: Sequence[Sequence[Slot]]) -> Played | None:
    """Return the times of everything; None if ranks wait for each other."""
    times: dict[Step, tuple[Fraction, Fraction]] = {}
    ends: dict[Step, Fraction] = {}
    messages = set()
    ran = {step for list_ in slots for slot in list_ for step in slot}
    copied: dict[Step, Fraction] = {}
    engine = {(rank, way): ZERO for rank in range(len(slots)) for way in "OL"}
    at, clock = [0] * len(slots), [ZERO] * len(slots)
    moved = True
    while moved:
        moved = False
        for rank, list_ in enumerate(slots):
            while at[rank] < len(list_):
                slot = list_[at[rank]]
                far = [(x, y) for y in slot for x in inputs(model, y) if model.home(*x[1:]) != rank]
                if any(x not in ends for x, _ in far):
                    break
                messages |= {(x[0], x[1], y[1], x[2]) for x, y in far}
                arrived = [ends[x] + model.cost["C", x[1], x[2]] for x, _ in far]
                ready = [copied["O" if x[0] == "O" else "L", x[1], x[2]] for x in slot if awaits(x, copied)]
                start = max([clock[rank], *arrived, *ready])
                clock[rank] = start + length(model, slot)
                for step in slot:
                    times[step] = (start, clock[rank])
                    ends[kind(step)] = clock[rank]
                    way = {"F": "O", "L": "L"}.get(step[0])
                    copy = (way or "", *step[1:])
                    if way and copy in ran:
                        engine[rank, way] = max(engine[rank, way], clock[rank]) + model.cost[copy]
                        copied[copy] = engine[rank, way]
                at[rank] += 1
                moved = True
    return Played(times, messages) if all(at[r] == len(list_) for r, list_ in enumerate(slots)) else None


def awaits(step: Step, copied: Mapping[Step, Fraction]) -> bool:
    return step[0] == "O" or (step[0] in GRADIENT and ("L", *step[1:]) in copied)


def peak(model: Model, slots: Sequence[Slot], at_input: Fraction, *, backward: bool) -> Fraction:
    """Return the most that a rank holds: F, R and L take at once, all else is freed when its slot ends."""
    again = {step[1:] for slot in slots for step in slot if step[0] == "R"}
    now = most = ZERO
    for slot in slots:
        for step in slot:
            whole, small = (model.cost[key, step[1], step[2]] for key in "MK")
            now += {"F": whole, "L": whole, "R": whole - small}.get(step[0], ZERO)
        most = max(most, now)
        for step in slot:
            letter, stage, i = step
            whole, small = model.cost["M", stage, i], model.cost["K", stage, i]
            if letter == "F" and not (backward and model.runs("I", stage)):
                now -= whole
            elif letter == "F":
                now -= whole - small if (stage, i) in again else ZERO
            elif letter == "O":
                now -= whole
            else:
                now += change(model, step, at_input) * whole
        most = max(most, now)
    return model.unit * most


def host(model: Model, slots: Sequence[Slot]) -> Fraction:
    """Return the most in host memory, from each O to its L."""
    now = most = ZERO
    for letter, stage, i in (step for slot in slots for step in slot):
        now += {"O": model.cost["M", stage, i], "L": -model.cost["M", stage, i]}.get(letter, ZERO)
        most = max(most, now)
    return model.unit * most


@dataclass(frozen=True)
class Figures:
    """The figures of an order, by rank if they are lists."""

    model: Model
    slots: Sequence[Sequence[Slot]]
    makespan: Fraction
    span: Fraction
    spans: list[Fraction]
    work: list[Fraction]
    hosts: list[Fraction]

    @classmethod
    def of(cls, model: Model, slots: Sequence[Sequence[Slot]], played: Played) -> Figures:
        run = [[played.times[step] for slot in list_ for step in slot if step[0] not in "OL"] for list_ in slots]
        spans = [max(b for _, b in times) - min(a for a, _ in times) if times else ZERO for times in run]
        work = [sum((length(model, slot) for slot in list_), ZERO) for list_ in slots]
        end = max((b for times in run for _, b in times), default=ZERO)
        return cls(model, slots, end, max(spans), spans, work, [host(model, list_) for list_ in slots])

    @property
    def idle(self) -> list[Fraction]:
        return [self.makespan - work for work in self.work]

    @property
    def span_idle(self) -> list[Fraction]:
        return [span - work for span, work in zip(self.spans, self.work, strict=True)]

    def peaks(self, at_input: Fraction) -> list[Fraction]:
        backward = any(step[0] in "IWB" for list_ in self.slots for slot in list_ for step in slot)
        return [peak(self.model, list_, at_input, backward=backward) for list_ in self.slots]
