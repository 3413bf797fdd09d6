"""Computes the time that a step would take if messages took no time, from the measured times of its instructions.

An instruction of a busy machine takes longer than it should, on every rank and in every run otherwise. The rest of a
step's time is added by the runtime: late messages, and waits that the order does not need.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipesched.stream import Instruction, Stream

Taken = Sequence[tuple[float, float, float]]  # begin, end and seconds waited, of each instruction of a rank
Key = tuple[bool, int, int, int]  # backward, route, stage, microbatch


def measured(ranks: Sequence[Taken]) -> float:
    """Return the time from the first begin to the last end."""
    return max(taken[-1][1] for taken in ranks) - min(taken[0][0] for taken in ranks)


def explained(stream: Stream, ranks: Sequence[Taken]) -> float:
    """Return the time of the same run if each instruction begins as soon as the previous one and the producers of its
    inputs have ended."""
    clocks = [taken[0][0] for taken in ranks]
    first, reached, made = min(clocks), [0] * len(ranks), dict[Key, float]()
    while any(at < len(order) for at, order in zip(reached, stream.ranks, strict=True)):
        before = list(reached)
        for rank, order in enumerate(stream.ranks):
            while (at := reached[rank]) < len(order) and all(need in made for need in needs(stream, order[at])):
                begin = max([clocks[rank], *(made[need] for need in needs(stream, order[at]))])
                clocks[rank] = begin + own(ranks[rank], at)
                made |= dict.fromkeys(map(key, computes(order[at])), clocks[rank])
                reached[rank] += 1
        assert reached != before, "the order waits for itself"
    return max(clocks) - first


def own(taken: Taken, at: int) -> float:
    """Return the time of an instruction without its waits, and the gap to the previous one."""
    begin, end, waited = taken[at]
    return end - begin - waited + (begin - taken[at - 1][1] if at else 0.0)


def computes(instruction: Instruction) -> list[Instruction]:
    return [part for part in instruction.parts or (instruction,) if part.op in ("F", "I", "B")]


def key(part: Instruction) -> Key:
    return part.op != "F", part.route, part.stage, part.microbatch


def needs(stream: Stream, instruction: Instruction) -> Iterator[Key]:
    """Yield its inputs from neighbouring stages."""
    for part in computes(instruction):
        neighbour = part.stage - 1 if part.op == "F" else part.stage + 1
        if 0 <= neighbour < stream.stages:
            yield part.op != "F", part.route, neighbour, part.microbatch
