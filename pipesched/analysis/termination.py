"""Decides under which communication models a program ends, and how much buffering it needs.

One run is enough: all runs end in the same state (`analysis.events`). Under strict there are two faster ways. A *clock*
proves that the program ends, and pairs the messages (`analysis.pairing`): messages can occur in clock order. Lowering
provides a clock, which is checked and never trusted. Without a clock, the program is run: a message completes when both
of its ends have begun, and a rank continues when all messages in its batch have completed. Compute operations never
block, so only messages are run.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from pipesched.analysis.communication import ASYNC, ONE_STREAM, PAIR_STREAM, STRICT, UNBOUNDED, Model, buffered
from pipesched.analysis.events import Events, heads
from pipesched.analysis.pairing import Pairing, pair
from pipesched.model.columns import Ints
from pipesched.model.ops import Op
from pipesched.model.schedule import Program
from pipesched.support.record import Value


class Verdicts(Value):
    """The models under which a program ends or stops, strictest first; capacity: see `least_capacity`."""

    holds: tuple[Model, ...]
    fails: tuple[Model, ...]
    capacity: int | None


def verdicts(program: Program, pairing: Pairing, asked: Model) -> Verdicts:
    """Return the verdict under every named model and under the requested one."""
    if holds(program, STRICT, pairing):
        models = dict.fromkeys((STRICT, buffered(1), ONE_STREAM, PAIR_STREAM, ASYNC, asked))
        return Verdicts(tuple(models), (), 0)
    capacity = least_capacity(program, pairing)
    found = {STRICT: False}
    if capacity is None:
        found[UNBOUNDED] = False
    else:
        found |= {buffered(capacity - 1): False} if capacity > 1 else {}
        found[buffered(capacity)] = True
    safe = False  # safe under a model, and so under the weaker models after it
    for model in (ONE_STREAM, PAIR_STREAM, ASYNC):
        found[model] = safe = safe or holds(program, model, pairing)
    if asked not in found:
        found[asked] = holds(program, asked, pairing)
    yes = tuple(model for model, verdict in found.items() if verdict)
    return Verdicts(yes, tuple(model for model, verdict in found.items() if not verdict), capacity)


def holds(program: Program, model: Model, pairing: Pairing | None = None) -> bool:
    """Return True if every rank finishes under the model."""
    pairing = pairing or pair(program)
    if model != STRICT:
        return all(stop < 0 for stop in Events(program, model, pairing).stops)
    if pairing.proved:
        return True
    ends = np.flatnonzero(program.sends | program.receives | (program.op == Op.SYNC))
    return not (pairing.partner[ends] < 0).any() and _run(program, pairing, ends)


def least_capacity(program: Program, pairing: Pairing | None = None) -> int | None:
    """Return 0 if the program ends under strict, else the least k for which it ends under buffered(k); None if no k
    helps.

    Ending is monotone in k, so k is doubled until the program ends, then bisected; this finds the usual small answers
    first. O((nodes + edges) log k).
    """
    if holds(program, STRICT, pairing):
        return 0
    if not holds(program, UNBOUNDED, pairing):
        return None
    high = 1
    while not holds(program, buffered(high), pairing):
        high *= 2
    low = high // 2 + 1  # equals high itself if high is 1
    return low + bisect_left(range(low, high), True, key=lambda k: holds(program, buffered(k), pairing))


def _run(program: Program, pairing: Pairing, ends: Ints) -> bool:
    """Return True if all messages complete; ranks begin their batches and single instructions one after another."""
    head = heads(program)[ends]
    fresh = np.flatnonzero(np.diff(head, prepend=-1))
    number = np.full(len(program), -1, dtype=np.int64)
    number[ends] = np.repeat(np.arange(len(fresh)), np.diff(fresh, append=len(ends)))
    other: list[int] = number[pairing.partner[ends]].tolist()  # by end: the line of its partner
    cut: list[int] = np.append(fresh, len(ends)).tolist()
    left = np.diff(cut).tolist()  # by line: the messages that are not done
    rank = program.rank[ends[fresh]]
    last: list[bool] = np.append(rank[1:] != rank[:-1], True).tolist()
    begun = bytearray(len(fresh))
    ready = np.flatnonzero(np.diff(rank, prepend=-1)).tolist()
    while ready:
        line = ready.pop()
        begun[line] = 1
        for there in other[cut[line] : cut[line + 1]]:
            if begun[there]:
                left[line] -= 1
                if there != line:
                    left[there] -= 1
                    if not left[there] and not last[there]:
                        ready.append(there + 1)
        if not left[line] and not last[line]:
            ready.append(line + 1)
    return not any(left)
