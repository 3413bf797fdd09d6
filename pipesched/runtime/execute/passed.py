"""Finds the stages that read a stage on a route that skips stages, and the rank of a stage."""

from __future__ import annotations

from pipesched.stream import Stream


def read_by(stream: Stream, stage: int, route: int) -> tuple[int, ...]:
    """Return the stages that read a stage on a route, the nearest first."""
    readers, ranks = stream.readers[stage], stream.placement[route].ranks
    while len(readers) == 1 and ranks[readers[0]] < 0:
        readers = stream.readers[readers[0]]
    return readers


def home(stream: Stream, stage: int) -> int:
    """Return the rank of a stage on the first route that has it."""
    return next(route.ranks[stage] for route in stream.placement if route.ranks[stage] >= 0)
