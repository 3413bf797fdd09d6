"""Clauses satisfied by every schedule with pairs and a makespan of at most C, derived from its terms alone.

Each rank runs one slot at a time: F, I, W, B, or a pair F+B, which takes FB and whose results are there at its end.
Which F runs with which B, and which backwards are whole, is open.

    s(k,t)      a slot of kind k starts at t
    f(q,i,t)    the i-th F of stage q has started by t          F(q,i,t)   it has ended by t
    g(q,i,t)    its i-th I or B has started by t                G(q,i,t)   it has ended by t
    w(q,j,t)    j weight gradients of stage q are done by t

    machine     no slot starts while another runs
    start       f, g rise only where a slot with such a part starts; one at a time
    end         not before the shortest slot is over; where a longer one starts at t', what ends sooner began before t'
    chain       f(s+1,i,t) -> F(s,i,t-C);   g(S-1,i,t) -> F(S-1,i,t);   g(s,i,t) -> G(s+1,i,t-C)
    weights     w rises only where W, B or a pair ends; a W that starts at t with j done needs j + 1 ended I or B
    memory      at every t: f summed over the stages of a rank, less w, is at most the cap

The microbatches of a route are alike, and a rank starts and ends its slots in the same order. So with starts and ends
sorted for each kind of result and stage, every inequality above still holds, and the weight gradients of a stage need
no names: some W is possible exactly if more I or B have ended than weight gradients are done or running.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from math import gcd, lcm
from typing import NamedTuple, TypeAlias

from pipesched.model.ops import Op
from pipesched.model.placement import Placement
from pipesched.optimizer.proof.clauses import MOST, TRUE, Number, Numbered, TooManyError
from pipesched.optimizer.verdict import Terms

Stage: TypeAlias = tuple[int, int]
"""Route and stage."""
Begun: TypeAlias = tuple[Op, Stage, int]
"""F or I, a stage, and the number of an operation among those of this kind and stage."""


class Kind(NamedTuple):
    """A kind of slot: the stage of its F, the stage of its backward, its kind of backward, its duration."""

    forward: Stage | None
    backward: Stage | None
    op: Op | None
    work: int


def _kinds(mine: Sequence[Stage], work: Mapping[Op, Sequence[int]], both: Sequence[int]) -> list[Kind]:
    """Return the kinds of slots of a rank with these stages. both: the duration of a pair, by the stage of its F."""
    made = [Kind(q, None, None, work[Op.F][q[1]]) for q in mine]
    made += [Kind(None, q, op, work[op][q[1]]) for q in mine for op in (Op.I, Op.W, Op.B)]
    return made + [Kind(one, two, Op.B, both[one[1]]) for one in mine for two in mine]


def _copies(placement: Placement) -> dict[Stage, int]:
    """Return every stage of every route that has microbatches, with their number."""
    counts = [int((placement.route_of == route).sum()) for route in range(placement.routes)]
    return {(route, s): n for route, n in enumerate(counts) if n for s in range(placement.stages)}


def _caps(terms: Terms, fine: int) -> list[int | None]:
    """Return the cap of each rank in units of 1 / fine; None without caps."""
    if terms.caps is None:
        return [None] * terms.placement.ranks
    return [int(cap * fine // 1) for cap in terms.caps]


def _wrong(terms: Terms) -> str:
    """Return the reason why the clauses do not describe these terms; empty if they do."""
    if terms.objective == "span" or terms.release.at_input or terms.release.at_weight != 1:
        return "pairs are decided for the makespan, with memory freed at W"
    if terms.placement.frozen or not terms.placement.chain:
        return "pairs are decided on a chain of stages, each with a backward"
    return ""


def _wrong_times(kinds: Sequence[Sequence[Kind]], work: Mapping[Op, Sequence[int]]) -> str:
    """Return the reason why the clauses do not describe slots of these durations; empty if they do."""

    def parts(kind: Kind) -> Iterator[int]:
        yield 1
        if kind.forward and kind.backward:
            yield from (work[Op.F][kind.forward[1]], work[Op.B][kind.backward[1]], work[Op.I][kind.backward[1]])

    if all(kind.work >= max(parts(kind)) for row in kinds for kind in row):
        return ""
    return "each operation must take time, and a pair at least as long as either part"


class Question:
    """The terms in ticks: kinds of slots and stages by rank, microbatches, memory and messages by stage."""

    def __init__(self, terms: Terms) -> None:
        placement, ticks = terms.placement, terms.costs.ticks(terms.placement.stages)
        pair = ticks.pair if ticks.pair is not None else ticks.compute[Op.F] + ticks.compute[Op.B]
        self.stages, self.scale = placement.stages, ticks.scale
        self.count = _copies(placement)
        self.all = [*self.count]
        self.routes = sorted({route for route, _ in self.all})
        self.rank = {q: int(placement.rank_of[q]) for q in self.all}
        self.ranks = placement.ranks
        self.tick = gcd(*ticks.compute[: Op.B + 1].ravel().tolist(), *pair.tolist(), *ticks.message.tolist()) or 1
        work = {op: (ticks.compute[op] // self.tick).tolist() for op in (Op.F, Op.I, Op.W, Op.B)}
        both, self.message = (pair // self.tick).tolist(), (ticks.message // self.tick).tolist()
        sizes = [size * placement.ranks / placement.stages for size in terms.costs.sizes(placement.stages)]
        fine = lcm(*(size.denominator for size in sizes))
        self.takes = {q: int(sizes[q[1]] * fine) for q in self.all}
        self.cap = _caps(terms, fine)
        self.work: dict[tuple[Op, Stage], int] = {(op, q): work[op][q[1]] for op in work for q in self.all}
        self.kinds = [_kinds([q for q in self.all if self.rank[q] == rank], work, both) for rank in range(self.ranks)]
        self.wrong = _wrong(terms) or _wrong_times(self.kinds, work)

    def heads(self) -> dict[tuple[Op, Stage], int]:
        """Return the least start of the first F and the first I or B of each stage, by chains."""
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
        """Return the least time from the start of the last F, or I or B, of each stage to the end."""
        made: dict[tuple[Op, Stage], int] = {}
        for route in self.routes:
            after = 0
            for s in range(self.stages):
                q = (route, s)
                own = min(self.work[Op.B, q], self.work[Op.I, q] + self.work[Op.W, q])
                passed = self.least(Op.I, q) + self.sent(route, s, s - 1) + after
                made[Op.I, q] = after = max(own, passed if s else 0)
            for s in reversed(range(self.stages)):
                made[Op.F, (route, s)] = after = self.work[Op.F, (route, s)] + self.sent(route, s, s + 1) + after
        return made

    def least(self, op: Op, q: Stage) -> int:
        """Return the shortest time of an F, or of an I or B, of a stage."""
        return self.work[op, q] if op is Op.F else min(self.work[Op.I, q], self.work[Op.B, q])

    def sums(self) -> tuple[int, int | None, int, int]:
        """Return the best bound by a sum: (value, rank, work, head); without a rank it is the longest path."""
        heads, tails = self.heads(), self.tails()
        best: tuple[int, int | None, int, int] = (max((x + tails[q] for q, x in heads.items()), default=0), None, 0, 0)
        for rank in range(self.ranks):
            mine = [q for q in self.all if self.rank[q] == rank]
            work = -(-sum(self.count[q] * self.busy(q) for q in mine) // 2)
            head = min((x for (_, q), x in heads.items() if q in mine), default=0)
            best = max(best, (head + work, rank, work, head), key=lambda one: one[0])
        return best

    def busy(self, q: Stage) -> int:
        """Return twice the least time for an F and a backward of a stage: each alone, or half of the cheapest pair."""
        back = min(self.work[Op.B, q], self.work[Op.I, q] + self.work[Op.W, q])
        pairs = [kind for kind in self.kinds[self.rank[q]] if kind.forward and kind.backward]
        forward = min(kind.work for kind in pairs if kind.forward == q)
        return min(2 * self.work[Op.F, q], forward) + min(2 * back, min(k.work for k in pairs if k.backward == q))

    def sent(self, route: int, s: int, to: int) -> int:
        apart = 0 <= to < self.stages and self.rank[route, s] != self.rank[route, to]
        return int(self.message[s]) if apart else 0


def _windows(asked: Question, until: int) -> tuple[dict[Begun, int], dict[Begun, int]]:
    """Return the earliest and the latest start of every operation of a kind of result and stage."""
    heads, tails = asked.heads(), asked.tails()
    every = [(op, q, i) for op, q in heads for i in range(asked.count[q])]
    low = {(op, q, i): heads[op, q] + i * asked.least(op, q) for op, q, i in every}
    return low, {(op, q, i): until - tails[op, q] - (asked.count[q] - 1 - i) * asked.least(op, q) for op, q, i in every}


class PairClauses(Numbered):
    """The clauses. slots: the variables of starts, by rank and t."""

    def __init__(self, asked: Question, bound: int, *, wanted: Container[int] | None = None, most: int = MOST) -> None:
        """Build the clauses for a makespan of at most `bound` ticks; raise TooManyError if there are too many."""
        super().__init__(wanted, most)
        self.longest = max(kind.work for kinds in asked.kinds for kind in kinds)
        self.slots: list[list[dict[Kind, int]]] = []
        self.asked, self.until = asked, bound // asked.tick
        if sum(asked.count.values()) * self.until > most:
            raise TooManyError(most)
        self.low, self.high = _windows(asked, self.until)
        if any(self.low[x] > self.high[x] for x in self.low):
            self._add()
            return
        self.slots = [[{} for _ in range(self.until)] for _ in range(asked.ranks)]
        for rank, kinds in enumerate(asked.kinds):
            for t in range(self.until):
                self.slots[rank][t] = {kind: self._new() for kind in kinds if t + kind.work <= self.until}
        self.begun = {x: self._row(self.low[x], self.high[x]) for x in self.low}
        self.over = {x: self._row(self.low[x] + asked.least(*x[:2]), self.until) for x in self.low}
        self.done = {(q, j): self._row(self._first(q, j), self.until) for q in asked.all for j in range(asked.count[q])}
        self._write()

    def lists(self) -> Iterable[list[int]]:
        """Return the clauses."""
        return self.known.values()

    def _first(self, q: Stage, j: int) -> int:
        """Return the least time at which j + 1 weight gradients of a stage are done."""
        a = self.asked
        return self.low[Op.I, q, j] + min(a.work[Op.B, q], a.work[Op.I, q] + a.work[Op.W, q])

    def _row(self, low: int, high: int) -> tuple[int, int, int]:
        """Return (low, high, offset) of variables that are false before low and true from high on."""
        offset = self.variables + 1 - low
        self.variables += max(0, high - low)
        return low, high, offset

    @staticmethod
    def _at(row: tuple[int, int, int], t: int) -> int:
        low, high, offset = row
        return TRUE if t >= high else -TRUE if t < low else offset + t

    def _write(self) -> None:
        for rows in (self.begun, self.over, self.done):
            for low, high, offset in rows.values():
                for t in range(low, high - 1):
                    self._add(-(offset + t), offset + t + 1)
        for rank in range(self.asked.ranks):
            self._machine(rank)
        for (op, q, i), row in self.begun.items():
            self._starts(op, q, i, row)
            self._ends(op, q, i)
        self._chains()
        for q in self.asked.all:
            self._weights(q)
        for rank, cap in enumerate(self.asked.cap):
            if cap is not None:
                self._held(rank, cap)

    def _machine(self, rank: int) -> None:
        """Add: while a slot runs, no other starts."""
        any_start = [self._new() for _ in range(self.until)]
        for t, slots in enumerate(self.slots[rank]):
            for kind, x in slots.items():
                self._add(-x, any_start[t])
                for later in range(t + 1, t + kind.work):
                    self._add(-x, -any_start[later])
            for one, two in combinations(slots.values(), 2):
                self._add(-one, -two)

    def _parts(self, op: Op, q: Stage, t: int) -> list[tuple[Kind, int]]:
        """Return the slots that start at t with an F of a stage, or with an I or B of it."""
        if not 0 <= t < self.until:
            return []
        slots = self.slots[self.asked.rank[q]][t].items()
        if op is Op.F:
            return [(kind, x) for kind, x in slots if kind.forward == q]
        return [(kind, x) for kind, x in slots if kind.backward == q and kind.op is not Op.W]

    def _starts(self, op: Op, q: Stage, i: int, row: tuple[int, int, int]) -> None:
        before, last = self.begun.get((op, q, i - 1)), i == self.asked.count[q] - 1
        for t in range(self.until):
            parts, ready = self._parts(op, q, t), TRUE if before is None else self._at(before, t - 1)
            self._add(-self._at(row, t), self._at(row, t - 1), *(x for _, x in parts))
            self._add(-self._at(row, t), ready)
            for _, x in parts:
                self._add(-x, -ready, self._at(row, t))
                self._add(-x, -self._at(row, t - 1) if last else TRUE)

    def _ends(self, op: Op, q: Stage, i: int) -> None:
        row, over = self.begun[op, q, i], self.over[op, q, i]
        least = self.asked.least(op, q)
        for t in range(over[0], self.until):
            self._add(-self._at(over, t), self._at(row, t - least))
            for begin in range(max(0, t - self.longest), t - least + 1):
                for kind, x in self._parts(op, q, begin):
                    if begin + kind.work > t:
                        self._add(-self._at(over, t), -x, self._at(row, begin - 1))

    def _chains(self) -> None:
        a = self.asked
        for (op, q, i), row in self.begun.items():
            route, s = q
            last = s == a.stages - 1
            if op is Op.F and s == 0:
                continue
            before = (Op.F, (route, s - 1), i) if op is Op.F else (Op.F, q, i) if last else (Op.I, (route, s + 1), i)
            other = before[1][1]
            lag = a.sent(route, other, s) if other != s else 0
            for t in range(row[0], row[1] + 1):
                self._add(-self._at(row, t), self._at(self.over[before], t - lag))

    def _weights(self, q: Stage) -> None:
        a, n = self.asked, self.asked.count[q]
        slots = self.slots[a.rank[q]]
        for j in range(n):
            row = self.done[q, j]
            for t in range(row[0], self.until + 1):
                ended = [
                    x
                    for begin in range(max(0, t - self.longest), t)
                    for kind, x in slots[begin].items()
                    if kind.backward == q and kind.op in (Op.W, Op.B) and begin + kind.work == t
                ]
                before = self._at(self.done[q, j - 1], t - 1) if j else TRUE
                self._add(-self._at(row, t), self._at(row, t - 1), *ended)
                self._add(-self._at(row, t), before)
                for x in ended:
                    self._add(-x, -before, self._at(row, t))
        for t, some in enumerate(slots):
            for kind, x in some.items():
                if kind.backward == q and kind.op is Op.W:
                    self._add(-x, self._at(self.over[Op.I, q, 0], t))
                    for j in range(n):
                        after = self._at(self.over[Op.I, q, j + 1], t) if j + 1 < n else -TRUE
                        self._add(-x, -self._at(self.done[q, j], t), after)

    def _held(self, rank: int, cap: int) -> None:
        a = self.asked
        mine = [q for q in a.all if a.rank[q] == rank]
        limit = cap + sum(a.takes[q] * a.count[q] for q in mine)
        for t in range(self.until):
            parts = []
            for q in mine:
                n = a.count[q]
                taken = [(i + 1, self._at(self.begun[Op.F, q, i], t)) for i in range(n)]
                held = [(n - j, -self._at(self.done[q, j], t)) for j in range(n)][::-1]
                parts += [_number(taken, a.takes[q]), _number(held, a.takes[q])]
            self._at_most(parts, limit)

    def _at_most(self, parts: Sequence[Number], limit: int) -> None:
        """Add: the sum of the parts is at most the limit."""
        if sum(part[-1][0] for part in parts) <= limit:
            return
        total: Number = [(0, TRUE)]
        for part in parts:
            total = self._sum(total, part)
        over = [x for v, x in total if v > limit]
        if over:
            self._add(-over[0])


def _number(counts: Sequence[tuple[int, int]], each: int) -> Number:
    """Return a count times `each` as a unary number, from literals of "at least n" for rising n."""
    sure = max((n for n, x in counts if x == TRUE), default=0)
    return [(sure * each, TRUE), *((n * each, x) for n, x in counts if n > sure and x != -TRUE)]
