"""Programs with moved sends and receives: each rank is consistent by itself, but the ranks together may not be.

A SEND stays behind the compute that makes its message, a RECV before the one that uses it, and each channel keeps its
order, so that messages are those that their receivers expect. Only who waits for whom changes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from pipesched.analysis.communication import STRICT
from pipesched.analysis.events import Events
from pipesched.analysis.pairing import pair
from pipesched.model.ops import Instruction, Op
from pipesched.model.schedule import Program
from tests.makers.programs import of_instructions
from tests.runtime.streams import SCHEDULES, program_of

MAKERS = {Op.SEND_F: (Op.F,), Op.SEND_B: (Op.I, Op.B)}
USERS = {Op.RECV_F: (Op.F,), Op.RECV_B: (Op.I, Op.B)}


def moved(rng: random.Random) -> tuple[Program, tuple[int, ...]]:
    """Return a program, and the stop of each rank under strict, -1 if it finishes."""
    while True:
        original = _drawn(rng)
        lists = [original.instructions(rank) for rank in range(original.ranks)]
        for _ in range(rng.randint(1, 4)):
            _move(rng, rng.choice(lists))
        program = of_instructions(lists, original.placement, original.name)
        if _text(program) != _text(original) and _labels_agree(program):
            return program, Events(program, STRICT).stops


def drawn(seed: int, deadlocked: bool, count: int) -> Iterator[tuple[Program, tuple[int, ...]]]:
    """Yield a number of programs, all different and none as lowered, that the verifier calls deadlocked, or safe."""
    rng = random.Random(seed)
    seen: set[str] = set()
    while len(seen) < count:
        program, stop = moved(rng)
        if any(at >= 0 for at in stop) == deadlocked and _text(program) not in seen:
            seen.add(_text(program))
            yield program, stop


def _text(program: Program) -> str:
    ranks = (" ".join(map(str, program.instructions(rank))) for rank in range(program.ranks))
    return "\n".join((program.name, *ranks))


def _drawn(rng: random.Random) -> Program:
    name = rng.choice(SCHEDULES)
    p = rng.choice((2, 4) if name == "dualpipe" else (2, 3, 4))
    least = {"dualpipe": 2 * p, "dualpipev": 2 * p, "zb_h2": 2 * p - 1}.get(name, p)
    return program_of(name, p=p, m=least * rng.choice((1, 2)) if p == 2 else least)


def _move(rng: random.Random, instructions: list[Instruction]) -> None:
    """Move one SEND or RECV to another place of its rank's list, near or far."""
    places = [i for i, x in enumerate(instructions) if x.op.send or x.op.receive]
    at = rng.choice(places)
    x = instructions.pop(at)
    low, high = 0, next(i for i, y in enumerate(instructions) if y.op in (Op.SYNC, Op.STEP))
    for i, y in enumerate(instructions):
        if (y.stage, y.microbatch) == (x.stage, x.microbatch):
            if y.op in MAKERS.get(x.op, ()):
                low = i + 1
            if y.op in USERS.get(x.op, ()):
                high = i
    near = [i for i in range(low, high + 1) if abs(i - at) <= rng.choice((2, 4, 20))]
    place = rng.choice(near or [at])
    if place < len(instructions) and instructions[place].second:  # not between the parts of an overlap pair
        place += 1 if x.op.send else -1
    instructions.insert(place, x)


def _labels_agree(program: Program) -> bool:
    """Return True if both ends of each message have the same name for it."""
    partner = pair(program).partner
    for index in range(len(program)):
        x = program[index]
        if x.op.send:
            if partner[index] < 0:
                return False
            y = program[int(partner[index])]
            step = 1 if x.op is Op.SEND_F else -1
            if (y.op.name[-1], y.stage, y.microbatch) != (x.op.name[-1], x.stage + step, x.microbatch):
                return False
    return True
