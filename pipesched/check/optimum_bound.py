"""A told bound, derived anew.

    path, one-machine   operations of a rank: least head + their work + least tail
    ends                head + (work of the rank - what fits before the head - what fits in the tail) + tail

What fits before a time is found by trying: so many F of each stage, as many backwards as can have come, and no more
held than the cap. In the tail the same, with W and I for F.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pipesched.check.optimum_paths import Facts, Line, heads, tails
from pipesched.model.ops import Op

KINDS = ("path", "one-machine", "ends")

Times: TypeAlias = Mapping[Line, list[int]]
Part: TypeAlias = tuple[Line, int, int]
"""Microbatches first .. end, of the route, of a line."""


@dataclass(frozen=True)
class Bound:
    """A bound as it is told, in ticks. operations: none where the kind is ends; before and after: 0 where it is not.

    frame: the rank whose span is counted, None for its own, and where a makespan is.
    """

    kind: str
    rank: int
    head: int
    work: int
    tail: int
    value: int
    before: int
    after: int
    operations: Sequence[Part]
    frame: int | None = None

    def counted(self, *, span: bool) -> int | None:
        """In which frame its head and tail are."""
        own = self.rank if self.frame is None else self.frame
        return own if span else None


def fault(facts: Facts, told: Bound, *, span: bool) -> str:
    """What is wrong with a bound, or an empty string."""
    if told.kind not in KINDS:
        return f"no bound is of kind {told.kind!r}"
    if not 0 <= told.rank < len(facts.cap):
        return f"there is no rank {told.rank}"
    if told.frame is not None and (not span or not 0 <= told.frame < len(facts.cap)):
        return f"nothing is counted in the frame of rank {told.frame}"
    if told.kind == "ends" and told.frame not in (None, told.rank):
        return "not all the work of a rank need be done in the frame of another"
    frame = told.counted(span=span)
    wrong = (_ends if told.kind == "ends" else _busy)(facts, told, heads(facts, frame), tails(facts, frame))
    total = told.head + told.work + told.tail - told.before - told.after
    return wrong or ("" if told.value == total else "its terms do not add up to its value")


def _busy(facts: Facts, told: Bound, head: Times, tail: Times) -> str:
    for line, low, high in told.operations:
        if facts.rank.get(line) != told.rank or not 0 <= low < high <= facts.length[line]:
            return f"rank {told.rank} has no {line.op.name} of stage {line.stage} for microbatches {low} .. {high}"
    number = sum(high - low for _, low, high in told.operations)
    twice = len({line for line, _, _ in told.operations}) != len(told.operations)
    if not number or twice or (told.kind == "path" and number != 1):
        return "it names no operations, the same ones twice, or more than one on a path"
    if told.work != sum((high - low) * facts.work[line] for line, low, high in told.operations):
        return "the work of its operations is another"
    if told.head > min(head[line][low] for line, low, _ in told.operations):
        return "one of its operations can start before the head"
    if told.tail > min(tail[line][high - 1] for line, _, high in told.operations):
        return "one of its operations can end less than the tail before everything has"
    return ""


def _ends(facts: Facts, told: Bound, head: Times, tail: Times) -> str:
    if told.work != sum(facts.work[line] * facts.length[line] for line in facts.on(told.rank)):
        return f"the work of rank {told.rank} is another"
    if told.before + told.after >= told.work:
        return "all the work fits at both ends, so they may overlap"
    if told.before < _fits(facts, told.rank, head, told.head, back=False):
        return "more work can be done before the head"
    if told.after < _fits(facts, told.rank, tail, told.tail, back=True):
        return "more work can be done in the tail"
    return ""


def _fits(facts: Facts, rank: int, time: Times, t: int, *, back: bool) -> int:
    """The most work of a rank before t, or in the last t."""
    best, cap = {0: 0}, facts.cap[rank]
    for line in [line for line in facts.on(rank) if line.op == Op.F]:
        stage = [x for x in facts.on(rank) if x[1:] == line[1:]]
        choices = dict(sorted((_tail if back else _head)(facts, stage, time, t)))  # of equal held, the most work
        best = dict(sorted((held + h, work + w) for held, work in best.items() for h, w in choices.items()))
    return max((work for held, work in best.items() if cap is None or held <= cap), default=0)


def _done(facts: Facts, line: Line, time: list[int], n: int, t: int) -> int:
    """The work done before t by the first n that have begun; the last one may still be running."""
    return 0 if not n else (n - 1) * facts.work[line] + min(facts.work[line], t - time[n - 1])


def _head(facts: Facts, stage: list[Line], time: Times, t: int) -> Iterator[tuple[int, int]]:
    """(held just before t, work before t) for every number of F of a stage."""
    begun = [bisect_left(time[line], t) for line in stage]
    over = [bisect_right(time[line], t - 1 - facts.work[line]) for line in stage]
    gains = [facts.gains[line] for line in stage]
    for f in range(begun[0] + 1):
        work = sum(_done(facts, x, time[x], min(f, n), t) for x, n in zip(stage, begun, strict=True))
        inner = min(f, over[1])
        last = min(inner, over[-1])
        held = gains[0] * f + gains[1] * (inner if gains[1] < 0 else last)
        yield held + (gains[2] * last if len(stage) > 2 else 0), work


def _tail(facts: Facts, stage: list[Line], time: Times, t: int) -> Iterator[tuple[int, int]]:
    """(held just after the last t have begun, work from there on) for every number of W and I that are not over."""
    late = {line: time[line][::-1] for line in stage}
    left = [bisect_left(late[line], t) for line in stage]
    unbegun = bisect_right(late[stage[0]], t - 1 - facts.work[stage[0]])
    gains = [facts.gains[line] for line in stage]
    for w in range(left[-1] + 1):
        for i in range(min(w, left[1]) + 1) if len(stage) > 2 else [w]:
            counts = [min(i, left[0]), i, w][: len(stage)]
            work = sum(_done(facts, x, late[x], n, t) for x, n in zip(stage, counts, strict=True))
            held = -gains[0] * min(i, unbegun) - gains[1] * i - (gains[2] * w if len(stage) > 2 else 0)
            yield held, work
