"""The strict model, fast: two ways to know that a program finishes under rendezvous.

A *clock* proves it in one pass: if it rises along every list and both ends of each message show the same instant,
then the messages can happen in clock order. Lowering hands its own clock over; it is checked, never believed.
Without a clock, run the program: a rank that stands at a message whose partner stands at the other end steps on, and
so does the partner. Computes never block, so only messages are walked.
"""

from __future__ import annotations

import numpy as np

from pipesched.analysis.channels import Pairing
from pipesched.analysis.events import build
from pipesched.analysis.models import STRICT
from pipesched.model.ops import Op
from pipesched.model.program import Program


def meets(program: Program, pairing: Pairing) -> bool:
    """Whether every rank finishes under strict."""
    meeting = program.sends | program.receives | (program.op == Op.SYNC)
    ends = np.flatnonzero(meeting)
    if np.any(pairing.partner[ends] < 0):
        return False
    if np.any(program.group[ends] >= 0):
        return all(stop < 0 for stop in build(program, STRICT, pairing).stops)
    return clock_proves(program, pairing) or _run(program, pairing, ends)


def clock_proves(program: Program, pairing: Pairing) -> bool:
    """Whether the program's clock is a certificate: strictly rising on each rank, equal at both ends of a message."""
    clock = program.clock
    if clock is None:
        return False
    rising = clock[1:] > clock[:-1]
    rising[program.start[1:-1][(program.start[1:-1] > 0) & (program.start[1:-1] < len(program))] - 1] = True
    ends = np.flatnonzero(pairing.partner >= 0)
    return bool(rising.all()) and bool(np.array_equal(clock[ends], clock[pairing.partner[ends]]))


def _run(program: Program, pairing: Pairing, ends: np.ndarray[tuple[int], np.dtype[np.int64]]) -> bool:
    """Run over the messages alone: `at[rank]` walks the rank's ends."""
    place = np.full(len(program), -1, dtype=np.int64)
    place[ends] = np.arange(len(ends))
    partner: list[int] = place[pairing.partner[ends]].tolist()
    rank: list[int] = program.rank[ends].tolist()
    cut = np.searchsorted(ends, program.start)
    at: list[int] = cut[:-1].tolist()
    last: list[int] = cut[1:].tolist()
    left = len(ends)
    ready = list(range(program.ranks))
    while ready:
        here = ready.pop()
        while at[here] < last[here]:
            other = partner[at[here]]
            there = rank[other]
            if at[there] != other:
                break
            at[here] += 1
            at[there] += 1
            left -= 2
            ready.append(there)
    return left == 0
