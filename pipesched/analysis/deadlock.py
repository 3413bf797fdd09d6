"""Where every rank stops under a communication model, and how much buffering a program needs.

One run is enough: all runs end in the same state (`analysis.events`). Under strict, computes never wait, so the run
goes over messages only.
"""

from __future__ import annotations

from pipesched.analysis.channels import Pairing, pair
from pipesched.analysis.events import build
from pipesched.analysis.models import STRICT, UNBOUNDED, Model, buffered, parse_model
from pipesched.analysis.rendezvous import meets
from pipesched.model.program import Program

__all__ = ["holds", "least_capacity", "parse_model", "stops"]


def stops(program: Program, model: Model) -> tuple[int, ...]:
    """Per rank: the 0-based step it cannot complete, the list's length if it waits at its end, -1 if finished."""
    return build(program, model).stops


def holds(program: Program, model: Model, pairing: Pairing | None = None) -> bool:
    """Whether every rank finishes."""
    pairing = pairing or pair(program)
    if model == STRICT:
        return meets(program, pairing)
    return all(stop < 0 for stop in build(program, model, pairing).stops)


def least_capacity(program: Program, pairing: Pairing | None = None) -> int | None:
    """0 if strict holds, else the least k such that buffered(k) holds, or None if no buffering helps.

    The models are monotone in k, so k is doubled until it holds, then bisected: small answers, which are the usual
    ones, come first. O((nodes + edges) log k).
    """
    pairing = pairing or pair(program)
    if holds(program, STRICT, pairing):
        return 0
    if not holds(program, UNBOUNDED, pairing):
        return None
    low, high = 1, 1
    while not holds(program, buffered(high), pairing):
        low, high = high + 1, 2 * high
    while low < high:
        middle = (low + high) // 2
        if holds(program, buffered(middle), pairing):
            high = middle
        else:
            low = middle + 1
    return low
