"""The terms of an optimization of slots, in ticks: kinds of slots, stages, memory and messages; and bounds by sums.

A slot is F, I, W, B, R, or a pair F+B. `slots` writes the clauses that every schedule under these terms satisfies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product
from math import gcd, lcm
from typing import NamedTuple, TypeAlias

from pipesched.model.ops import Op
from pipesched.model.placement import Placement
from pipesched.optimizer.verdict import Terms

Stage: TypeAlias = tuple[int, int]
"""Route and stage."""


class Kind(NamedTuple):
    """A kind of slot: stage of its F, whether this F runs again, stage and kind of its I, W, B or R, and duration."""

    forward: Stage | None
    again: bool
    backward: Stage | None
    op: Op | None
    work: int


EACH, STAGES = "any", "stages"
"""The choices for R other than a list of stages: any F can run again, or a stage runs all or none of its F again."""


def _again(terms: Terms, stage: int) -> tuple[bool, ...]:
    """Return whether an F of a stage can run without R, with R, or both: (False,), (True,) or (False, True)."""
    if terms.again in (EACH, STAGES):
        return (False, True)
    return (str(stage) in terms.again.split(","),)


def _kinds(mine: Sequence[Stage], terms: Terms, work: Mapping[Op, Sequence[int]], both: Sequence[int]) -> list[Kind]:
    """Return the kinds of slots on a rank with the stages `mine`. both: the duration of a pair, by stage of its F."""
    forwards = [(q, again) for q in mine for again in _again(terms, q[1])]
    made = [Kind(*one, None, None, work[Op.F][one[0][1]]) for one in forwards]
    made += [Kind(None, False, q, op, work[op][q[1]]) for q in mine for op in backwards(terms)]
    made += [Kind(None, False, q, Op.R, work[Op.R][q[1]]) for q, again in forwards if again]
    pairs = product(forwards, mine) if terms.pairs else ()
    return made + [Kind(*one, two, Op.B, both[one[0][1]]) for one, two in pairs]


def backwards(terms: Terms) -> tuple[Op, ...]:
    """Return the kinds of backwards that can run in a slot of their own."""
    if terms.pairs:
        return (Op.I, Op.W, Op.B)
    return (Op.B,) if terms.fused else (Op.I, Op.W)


def _copies(placement: Placement) -> dict[Stage, int]:
    """Return the number of microbatches for each stage of each route that has microbatches."""
    counts = [int((placement.route_of == route).sum()) for route in range(placement.routes)]
    return {(route, s): n for route, n in enumerate(counts) if n for s in range(placement.stages)}


def _wrong(terms: Terms) -> str:
    """Return the reason why the clauses do not describe these terms; an empty string if they do."""
    title = "deciding pairs" if terms.pairs else "deciding recomputation"
    if terms.objective == "span" or terms.release.at_input or terms.release.at_weight != 1:
        return f"{title} requires --objective makespan and memory freed at W"
    if terms.placement.frozen or not terms.placement.chain:
        return f"{title} requires a chain of stages, each with a backward"
    return _wrong_again(terms) if terms.again else ""


def _wrong_again(terms: Terms) -> str:
    named = [] if terms.again in (EACH, STAGES) else terms.again.split(",")
    if wrong := [s for s in named if not (s.isdecimal() and int(s) < terms.placement.stages)]:
        return f"stage {wrong[0][:20]} does not exist"
    stages = terms.placement.stages
    kept = zip(terms.costs.sizes(stages), terms.costs.kept(stages).column, strict=True)
    full = [s for s, (size, small) in enumerate(kept) if small >= size]
    if len(full) == stages or any(_again(terms, s) == (True,) for s in full):
        return f"an F of stage {full[0]} keeps K, which equals its M, so recomputing it frees nothing"
    return ""


def _wrong_times(kinds: Sequence[Sequence[Kind]], work: Mapping[Op, Sequence[int]]) -> str:
    """Return the reason why the clauses do not describe slots of these durations; an empty string if they do."""

    def parts(kind: Kind) -> Iterator[int]:
        yield 1
        if kind.forward and kind.backward:
            yield from (work[Op.F][kind.forward[1]], work[Op.B][kind.backward[1]], work[Op.I][kind.backward[1]])

    if all(kind.work >= max(parts(kind)) for row in kinds for kind in row):
        return ""
    return "each operation must take time, and a pair must take at least as long as either part"


class Question:
    """The terms in ticks: the kinds of slots on each rank; microbatches, memory and messages for each stage."""

    def __init__(self, terms: Terms) -> None:
        placement, ticks = terms.placement, terms.costs.ticks(terms.placement.stages)
        pair = ticks.pair.get("FB", ticks.compute[Op.F] + ticks.compute[Op.B])
        self.stages, self.scale = placement.stages, ticks.scale
        self.count = _copies(placement)
        self.all = [*self.count]
        self.routes = sorted({route for route, _ in self.all})
        self.rank = {q: int(placement.rank_of[q]) for q in self.all}
        self.ranks = placement.ranks
        run = [Op.F, *backwards(terms)] + [Op.R] * bool(terms.again)
        both = pair if terms.pairs else ticks.compute[Op.F]
        self.tick = gcd(*ticks.compute[run].ravel().tolist(), *both.tolist(), *ticks.message.tolist()) or 1
        work = {op: (ticks.compute[op] // self.tick).tolist() for op in (Op.F, Op.I, Op.W, Op.B, Op.R)}
        self.message = (ticks.message // self.tick).tolist()
        self.ops, self.again, self.pairs = backwards(terms), terms.again, terms.pairs
        self._hold(terms)
        self.work: dict[tuple[Op, Stage], int] = {(op, q): work[op][q[1]] for op in work for q in self.all}
        mine = [[q for q in self.all if self.rank[q] == rank] for rank in range(self.ranks)]
        self.kinds = [_kinds(some, terms, work, (both // self.tick).tolist()) for some in mine]
        self.wrong = _wrong(terms) or _wrong_times(self.kinds, work)

    def _hold(self, terms: Terms) -> None:
        """Set the memory that an F takes, the memory that it frees until its R, and the caps, all as integers."""
        stages = self.stages
        small = terms.costs.kept(stages).column if terms.again else (Fraction(0),) * stages
        sizes, less = (
            [x * self.ranks / stages for x in of]
            for of in (
                terms.costs.sizes(stages),
                [a - b for a, b in zip(terms.costs.sizes(stages), small, strict=True)],
            )
        )
        fine = self.fine = lcm(*(x.denominator for x in (*sizes, *less)))
        self.takes = {q: int(sizes[q[1]] * fine) for q in self.all}
        self.drops = {q: int(less[q[1]] * fine) for q in self.all}
        self.cap = terms.whole_caps(fine)

    def heads(self) -> dict[tuple[Op, Stage], int]:
        """Return the earliest start of the first F and of the first I or B of each stage, along chains."""
        made: dict[tuple[Op, Stage], int] = {}
        for route in self.routes:
            now = 0
            for s in range(self.stages):
                made[Op.F, (route, s)] = now
                now += self.work[Op.F, (route, s)] + self.sent(route, s, s + 1)
            for s in reversed(range(self.stages)):
                made[Op.I, (route, s)] = now
                now += self.least(Op.I, (route, s)) + self.sent(route, s, s - 1)
        return made

    def tails(self) -> dict[tuple[Op, Stage], int]:
        """Return the least time from the start of each stage's last F, and of its last I or B, to the end."""
        made: dict[tuple[Op, Stage], int] = {}
        for route in self.routes:
            after = 0
            for s in range(self.stages):
                q = (route, s)
                own = self.whole(q)
                passed = self.least(Op.I, q) + self.sent(route, s, s - 1) + after
                made[Op.I, q] = after = max(own, passed if s else 0)
            for s in reversed(range(self.stages)):
                made[Op.F, (route, s)] = after = self.work[Op.F, (route, s)] + self.sent(route, s, s + 1) + after
        return made

    def least(self, op: Op, q: Stage) -> int:
        """Return the shortest time of an F, or of an I or B, of a stage."""
        return self.work[op, q] if op is Op.F else min(self.work[x, q] for x in self.ops if x is not Op.W)

    def whole(self, q: Stage) -> int:
        """Return the shortest time for both gradients of a stage, as B or as I and W, in slots of their own."""
        both = [self.work[Op.B, q]] * (Op.B in self.ops) + [self.work[Op.I, q] + self.work[Op.W, q]] * (
            Op.I in self.ops
        )
        return min(both)

    def sums(self) -> tuple[int, int | None, int, int]:
        """Return the best bound by a sum: (value, rank, work, head); if rank is None, the bound is the longest path."""
        heads, tails = self.heads(), self.tails()
        best: tuple[int, int | None, int, int] = (max((x + tails[q] for q, x in heads.items()), default=0), None, 0, 0)
        for rank in range(self.ranks):
            mine = [q for q in self.all if self.rank[q] == rank]
            work = -(-sum(self.count[q] * self.busy(q) for q in mine) // 2)
            head = min((x for (_, q), x in heads.items() if q in mine), default=0)
            best = max(best, (head + work, rank, work, head), key=lambda one: one[0])
        return best

    def busy(self, q: Stage) -> int:
        """Return twice the least time for an F and a backward of a stage; in a pair, each takes half of its time."""
        pairs = [kind for kind in self.kinds[self.rank[q]] if kind.forward and kind.backward]
        forward = min([2 * self.work[Op.F, q], *(kind.work for kind in pairs if kind.forward == q)])
        return forward + min([2 * self.whole(q), *(kind.work for kind in pairs if kind.backward == q)])

    def sent(self, route: int, s: int, to: int) -> int:
        apart = 0 <= to < self.stages and self.rank[route, s] != self.rank[route, to]
        return int(self.message[s]) if apart else 0
