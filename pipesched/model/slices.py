"""Sequences cut into slices: microbatches q*i to q*i + q - 1 are the slices of sequence i.

q = 2      F 0 1 2 3      a slice attends to earlier slices, so F(j) follows F(j - 1) of its sequence
           B 1 0 3 2      and gradients flow in reverse: I, B(j) follow I, B(j + 1)
"""

from __future__ import annotations

from typing import TypeVar

from pipesched.model.columns import Column

Place = TypeVar("Place", int, Column)


def mirrored(microbatch: Place, slices: int) -> Place:
    """Return the slice at the mirrored position in its sequence; a single slice is its own mirror."""
    at: Place = microbatch % slices
    return microbatch - at + slices - 1 - at
