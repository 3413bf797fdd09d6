"""The schedules that a plan tries, with their placements and the forwards that a rank holds before its first backward.

    linear   stage s on rank s                   1F1B, ZB-H1, ZB-H2
    loop     stage s on rank s % p               interleaved, interleaved zero bubble
    vee      stage s on rank min(s, 2p - 1 - s)  ZB-V, 1F1B-V, V-Half, V-Min

A rank holds these forwards at some instant, whatever the times, so they bound its peak from below before any order is
expanded. They are counted per chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A library schedule. chunks: stages per rank, None if v sets them. fused: whether the schedule's backwards are B.

    rank_of: the rank of a stage. before: the number of forwards of each chunk before the first backward, from p, v, m
        and the rank. refuses: returns the reason why the schedule does not support these sizes, or an empty string.
    """

    name: str
    chunks: int | None
    fused: bool
    rank_of: Callable[[int, int], int]
    before: Callable[[int, int, int, int], tuple[int, ...]]
    refuses: Callable[[int, int, int], str]

    def stages(self, p: int, v: int) -> tuple[tuple[int, ...], ...]:
        """Return the stages of every rank, in ascending order."""
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


def _rounds(p: int, v: int, m: int, r: int) -> tuple[int, ...]:
    """Implement `Row.before` for interleaved zero bubble, whose rounds have n microbatches (p or a few more)."""
    n = m // max(1, m // p)
    groups, rest = divmod(min(p - r + (v - 1) * n, v * m), n * v)
    return tuple(min(m, groups * n + min(n, max(0, rest - n * chunk))) for chunk in range(v))


def _repeated(begin: Callable[[int, int], tuple[int, int, int]]) -> Callable[[int, int, int, int], tuple[int, ...]]:
    """Return the function `Row.before` of a schedule that repeats a block of six slots.

    begin: returns the slots of each chunk's first forward and of the first backward, for p and a rank.
    """

    def before(p: int, v: int, m: int, r: int) -> tuple[int, ...]:
        *first, backward = begin(p, r)
        return tuple(min(m, -(-(backward - slot) // 6)) for slot in first)

    return before


def _1f1b_v(p: int, r: int) -> tuple[int, int, int]:
    apart = 3 if p % 3 == 0 else 0
    return r, 2 * p - 1 - r, 2 * p + apart + 2 * r + (r + (-p - 2) % 3) // 3 * 3


def _v_half(p: int, r: int) -> tuple[int, int, int]:
    return 2 * r, 3 * p - 2 - r, 3 * p + (3 if p % 2 == 0 else 0) + 2 * r - 1


def _v_min(p: int, r: int) -> tuple[int, int, int]:
    return r, 2 * p - 1 - r, 2 * p + (2 if p % 3 == 0 else 0) + r


def _on_v(s: int, p: int) -> int:
    return min(s, 2 * p - 1 - s)


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
        lambda p, v, m: "" if m % p == 0 else "the number of microbatches is not a multiple of p",
    ),
    Row("zb_h1", 1, False, lambda s, p: s, lambda p, v, m, r: (min(p - r, m),), _any),
    Row(
        "zb_h2",
        1,
        False,
        lambda s, p: s,
        lambda p, v, m, r: (min(2 * (p - 1 - r) + 1, m),),
        lambda p, v, m: "" if m >= 2 * p - 1 else "it has fewer than 2p - 1 microbatches",
    ),
    Row("zb_v", 2, False, _on_v, _vee, _any),
    Row("1f1b_v", 2, True, _on_v, _repeated(_1f1b_v), _any),
    Row("v_half", 2, False, _on_v, _repeated(_v_half), _any),
    Row("v_min", 2, False, _on_v, _repeated(_v_min), _any),
    Row(
        "interleaved_zb",
        None,
        False,
        lambda s, p: s % p,
        _rounds,
        lambda p, v, m: "" if m % (m // max(1, m // p)) == 0 else "the microbatches do not fill equal rounds",
    ),
)
_TWICE = "has several copies of every stage, on different ranks"
UNTRIED: Mapping[str, str] = {
    "dualpipe": _TWICE,
    "chimera": _TWICE,
    "chimera_n": _TWICE,
    "bitpipe": _TWICE,
    "dualpipev": "is faster only if messages to experts overlap compute, which a plan does not assume",
}
"""Known library schedules that a plan does not try, each with the reason."""
SCHEDULES: Mapping[str, Row] = {row.name: row for row in ROWS}
