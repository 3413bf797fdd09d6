"""The schedules that a plan tries: their placements, and the forwards that a rank holds before its first backward.

    linear   stage s on rank s                   1F1B, ZB-H1, ZB-H2
    loop     stage s on rank s % p               interleaved
    vee      stage s on rank min(s, 2p - 1 - s)  ZB-V

A rank holds these forwards at some instant, whatever the times, so they bound its peak from below before any order is
expanded. They are counted per chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A library schedule. chunks: stages per rank, None if that is v. fused: its backwards are B.

    rank_of: the rank of a stage. before: the number of forwards of each chunk before the first backward, from p, v, m
    and the rank. refuses: why it does not support a size, or an empty text.
    """

    name: str
    chunks: int | None
    fused: bool
    rank_of: Callable[[int, int], int]
    before: Callable[[int, int, int, int], tuple[int, ...]]
    refuses: Callable[[int, int, int], str]

    def stages(self, p: int, v: int) -> tuple[tuple[int, ...], ...]:
        """Return the stages of every rank, ascending."""
        held: list[list[int]] = [[] for _ in range(p)]
        for stage in range(p * v):
            held[self.rank_of(stage, p)].append(stage)
        return tuple(map(tuple, held))


def _interleaved(p: int, v: int, m: int, r: int) -> tuple[int, ...]:
    forwards = min(2 * (p - 1 - r) + (v - 1) * p + 1, v * m)
    groups, rest = divmod(forwards, p * v)
    return tuple(groups * p + min(p, max(0, rest - p * chunk)) for chunk in range(v))


def _vee(p: int, v: int, m: int, r: int) -> tuple[int, ...]:
    return min(2 * (p - r) - 1 + r, m), min(r + 1, m)


def _any(p: int, v: int, m: int) -> str:
    return ""


ROWS = (
    Row("1f1b", 1, True, lambda s, p: s, lambda p, v, m, r: (min(p - r, m),), _any),
    Row(
        "interleaved",
        None,
        True,
        lambda s, p: s % p,
        _interleaved,
        lambda p, v, m: "" if m % p == 0 else "microbatches are not a multiple of p",
    ),
    Row("zb_h1", 1, False, lambda s, p: s, lambda p, v, m, r: (min(p - r, m),), _any),
    Row(
        "zb_h2",
        1,
        False,
        lambda s, p: s,
        lambda p, v, m, r: (min(2 * (p - 1 - r) + 1, m),),
        lambda p, v, m: "" if m >= 2 * p - 1 else "fewer than 2p - 1 microbatches",
    ),
    Row("zb_v", 2, False, lambda s, p: min(s, 2 * p - 1 - s), _vee, _any),
)
_TWICE = "has more than one copy of every stage, on different ranks"
UNTRIED: Mapping[str, str] = {
    "dualpipe": _TWICE,
    "chimera": _TWICE,
    "chimera2": _TWICE,
    "bitpipe": _TWICE,
    "dualpipev": "gains by overlapping messages to experts, which a plan does not assume",
}
"""The library schedules that people ask for, and why a plan does not try them."""
SCHEDULES: Mapping[str, Row] = {row.name: row for row in ROWS}
