"""A bound that a certificate gives: derived anew, and put into words with numbers that add up.

    path, one-machine   operations of a rank: least head + their work + least tail
    ends                head + (work of the rank - what fits before the head - what fits in the tail) + tail

What fits before a time is found by trying: so many F of each stage, as many backwards as can have come, and no more
held than the cap. In the tail the same, with W and I for F.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from pipesched.check.optimum_paths import Facts, Line, heads, tails
from pipesched.model.numbers import shown
from pipesched.model.ops import Op

KINDS = ("path", "one-machine", "ends")

Times: TypeAlias = Mapping[Line, list[int]]
Part: TypeAlias = tuple[Line, int, int]
"""Microbatches first .. end, of the route, of a line."""


@dataclass(frozen=True)
class Bound:
    """A bound as a certificate gives it, in ticks. operations: none where the kind is ends; before, after: 0 where not.

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


def everything(facts: Facts, rank: int, *, span: bool) -> Bound:
    """All operations of a rank: the least that it takes."""
    frame, mine = rank if span else None, facts.on(rank)
    head, tail = (min(of(facts, frame)[line][at] for line in mine) for of, at in ((heads, 0), (tails, -1)))
    work = sum(facts.work[line] * facts.length[line] for line in mine)
    return Bound(
        "one-machine", rank, head, work, tail, head + work + tail, 0, 0, [(x, 0, facts.length[x]) for x in mine]
    )


def fault(facts: Facts, bound: Bound, *, span: bool) -> str:
    """What is wrong with a bound, or an empty string."""
    if bound.kind not in KINDS:
        return f"no bound is of kind {bound.kind!r}"
    if not 0 <= bound.rank < len(facts.cap):
        return f"there is no rank {bound.rank}"
    if bound.frame is not None and (not span or not 0 <= bound.frame < len(facts.cap)):
        return f"nothing is counted in the frame of rank {bound.frame}"
    if bound.kind == "ends" and bound.frame not in (None, bound.rank):
        return "not all the work of a rank need be done in the frame of another"
    frame = bound.counted(span=span)
    wrong = (_ends if bound.kind == "ends" else _busy)(facts, bound, heads(facts, frame), tails(facts, frame))
    total = bound.head + bound.work + bound.tail - bound.before - bound.after
    return wrong or ("" if bound.value == total else "its terms do not add up to its value")


def _busy(facts: Facts, bound: Bound, head: Times, tail: Times) -> str:
    for line, low, high in bound.operations:
        if facts.rank.get(line) != bound.rank or not 0 <= low < high <= facts.length[line]:
            return f"rank {bound.rank} has no {line.op.name} of stage {line.stage} for microbatches {low} .. {high}"
    number = sum(high - low for _, low, high in bound.operations)
    twice = len({line for line, _, _ in bound.operations}) != len(bound.operations)
    if not number or twice or (bound.kind == "path" and number != 1):
        return "it names no operations, the same ones twice, or more than one on a path"
    if bound.work != sum((high - low) * facts.work[line] for line, low, high in bound.operations):
        return "the work of its operations is another"
    if bound.head > min(head[line][low] for line, low, _ in bound.operations):
        return "one of its operations can start before the head"
    if bound.tail > min(tail[line][high - 1] for line, _, high in bound.operations):
        return "one of its operations can end less than the tail before everything has"
    return ""


def _ends(facts: Facts, bound: Bound, head: Times, tail: Times) -> str:
    if bound.work != sum(facts.work[line] * facts.length[line] for line in facts.on(bound.rank)):
        return f"the work of rank {bound.rank} is another"
    if bound.before + bound.after >= bound.work:
        return "all the work fits at both ends, so they may overlap"
    if bound.before < _fits(facts, bound.rank, head, bound.head, back=False):
        return "more work can be done before the head"
    if bound.after < _fits(facts, bound.rank, tail, bound.tail, back=True):
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


def explained(bound: Bound, scale: int) -> str:
    """A bound in words; scale: ticks of the unit of time."""
    head, work, tail, total, before, after = (
        shown(Fraction(ticks, scale))
        for ticks in (bound.head, bound.work, bound.tail, bound.value, bound.before, bound.after)
    )
    if bound.kind == "path":
        return f"the longest path, through rank {bound.rank}: {total}"
    if bound.kind == "ends":
        fits = [f"{before} fit into the first {head}"] * (bound.head > 0)
        fits += [f"{after} into the last {tail}" if fits else f"{after} fit into the last {tail}"] * (bound.tail > 0)
        total_of = _sum((bound.head, head), (bound.work, work), (-bound.before, before), (-bound.after, after))
        why = f"rank {bound.rank} has {work} of work, of which its cap lets {' and '.join(fits)}"
        return f"{why}: {total_of}{f' + {tail}' * (bound.tail > 0)} = {total}"
    apart = bound.frame not in (None, bound.rank)
    begins, end = (f"{head} after rank {bound.frame}", f"rank {bound.frame}") if apart else (f"after {head}", "the end")
    where = [f"begins {begins}"] * (bound.head > 0) + [f"ends {tail} before {end}"] * (bound.tail > 0)
    why = f"rank {bound.rank} has {work} of work" + f" that {' and '.join(where)}" * bool(where)
    return why + f": {_sum((bound.head, head), (bound.work, work), (bound.tail, tail))} = {total}" * bool(where)


def named(bound: Bound) -> str:
    """Where it comes from, in a word."""
    return "the longest path" if bound.kind == "path" else f"rank {bound.rank}"


def _sum(*parts: tuple[int, str]) -> str:
    """``8 + 10 - 3``: the parts that are not 0, those with a minus whose number is negative."""
    there = [(sign, text) for sign, text in parts if sign]
    return "".join(f" {'-' if sign < 0 else '+'} {text}" for sign, text in there).removeprefix(" + ")
