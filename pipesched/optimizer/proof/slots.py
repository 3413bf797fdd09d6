"""Clauses satisfied by every schedule of slots with a makespan of at most C, derived only from the terms.

Each rank runs one slot at a time: F, I, W, B, R, or a pair F+B, which takes FB and yields its results at its end. The
terms can leave open which F and B are pairs, which backwards are whole, and which F run again.

    s(k,t)      a slot of kind k starts at t
    f(q,i,t)    the i-th F of stage q has started by t          F(q,i,t)   it has ended by t
    g(q,i,t)    its i-th I or B has started by t                G(q,i,t)   it has ended by t
    w(q,j,t)    j weight gradients of stage q are done by t
    x(q,i)      the i-th F of stage q runs again                d(q,i,j)   so do j of its first i
    e(q,j,t)    j F of stage q that run again have ended        r(q,j,t)   j R of stage q have started by t

    machine     no slot starts while another runs
    start       f, g, r rise only where a slot with such a part starts; one at a time
    end         not before the shortest slot is over; if a longer one starts at t', what ends sooner began before t'
    chain       f(s+1,i,t) -> F(s,i,t-C);   g(S-1,i,t) -> F(S-1,i,t);   g(s,i,t) -> G(s+1,i,t-C)
    weights     w rises only where W, B or a pair ends; a W that starts at t with j done needs j + 1 ended I or B
    again       r(q,j,t) -> e(q,j,t);   g(q,i,t), x(q,i) and d(q,i,j) -> r(q,j,t-R)
    memory      at every t, over the stages of a rank: M (f - w) - (M - K) (e - r) is at most the cap

The microbatches of a route are alike, and a rank ends its slots in the order in which it starts them. So with starts
and ends sorted for each kind of result and stage, every inequality above still holds, and the weight gradients of a
stage need no names: a W can start if and only if more I or B have ended than weight gradients are done or running. The
same is true of R if all F of a stage run again. If it is decided for each F whether it runs again, the F differ; the
clauses then cover only the schedules in which every stage runs its F, its R and its backwards in microbatch order.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import combinations, pairwise, product
from typing import TypeAlias

from pipesched.model.ops import Op
from pipesched.optimizer.proof.clauses import MOST, TRUE, Number, Numbered, TooManyError
from pipesched.optimizer.proof.slot_terms import EACH, Kind, Question, Stage

Begun: TypeAlias = tuple[Op, Stage, int]
"""F or I, a stage, and the index of an operation of this kind and stage."""


def _windows(asked: Question, until: int) -> tuple[dict[Begun, int], dict[Begun, int]]:
    """Return the earliest and the latest start of every F, and of every I or B."""
    heads, tails = asked.heads(), asked.tails()
    every = [(op, q, i) for op, q in heads for i in range(asked.count[q])]
    low = {(op, q, i): heads[op, q] + i * asked.least(op, q) for op, q, i in every}
    return low, {(op, q, i): until - tails[op, q] - (asked.count[q] - 1 - i) * asked.least(op, q) for op, q, i in every}


class SlotClauses(Numbered):
    """The clauses. slots: for each rank and time t, the variable of each kind of slot that can start at t."""

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
        for kinds in asked.kinds:
            fit = [[kind for kind in kinds if t + kind.work <= self.until] for t in range(self.until)]
            self.slots.append([{kind: self._new() for kind in some} for some in fit])
        self._rows()
        self._write()

    def _rows(self) -> None:
        """Create the variables of all counts."""
        asked, never = self.asked, self.until + 1
        self.begun = {x: self._row(self.low[x], self.high[x]) for x in self.low}
        self.over = {x: self._row(self.low[x] + asked.least(*x[:2]), self.until) for x in self.low}
        each = [(q, j) for q in asked.all for j in range(asked.count[q])]
        self.done = {(q, j): self._row(self.low[Op.I, q, j] + asked.whole(q), self.until) for q, j in each}
        again = each if asked.again else []
        self.left = {(q, j): self._row(self.low[Op.F, q, j] + asked.work[Op.F, q], never) for q, j in again}
        self.back = {(q, j): self._row(self.low[Op.F, q, j] + asked.work[Op.F, q], never) for q, j in again}
        self.runs_again = {x: self._new() for x in again}

    def lists(self) -> Iterable[list[int]]:
        """Return the clauses."""
        return self.known.values()

    def _row(self, low: int, high: int) -> tuple[int, int, int]:
        """Create the variables of a row, false before low and true from high on; return (low, high, offset)."""
        offset = self.variables + 1 - low
        self.variables += max(0, high - low)
        return low, high, offset

    @staticmethod
    def _at(row: tuple[int, int, int], t: int) -> int:
        low, high, offset = row
        return TRUE if t >= high else -TRUE if t < low else offset + t

    def _write(self) -> None:
        for rows in (self.begun, self.over, self.done, self.left, self.back):
            for low, high, offset in rows.values():
                for t in range(low, high - 1):
                    self._add(-(offset + t), offset + t + 1)
        for rank in range(self.asked.ranks):
            self._machine(rank)
        for op, q in product((Op.F, Op.I), self.asked.all):
            row = [self.begun[op, q, i] for i in range(self.asked.count[q])]
            self._rises(row, [[x for _, x in self._parts(op, q, t)] for t in range(self.until + 1)])
        for op, q, i in self.begun:
            self._ends(op, q, i)
        self._chains()
        for q in self.asked.all:
            self._weights(q)
            if self.asked.again:
                self._recomputed(q)
        for rank, cap in enumerate(self.asked.cap):
            if cap is not None:
                self._held(rank, cap)

    def _machine(self, rank: int) -> None:
        """Add clauses for: no slot starts while another slot runs."""
        any_start = [self._new() for _ in range(self.until)]
        for t, slots in enumerate(self.slots[rank]):
            for kind, x in slots.items():
                self._add(-x, any_start[t])
                for later in range(t + 1, t + kind.work):
                    self._add(-x, -any_start[later])
            for one, two in combinations(slots.values(), 2):
                self._add(-one, -two)

    def _parts(self, op: Op, q: Stage, t: int) -> list[tuple[Kind, int]]:
        """Return the kinds and variables of slots that start at t with an F or, for I, with an I or B of a stage."""
        if not 0 <= t < self.until:
            return []
        slots = self.slots[self.asked.rank[q]][t].items()
        if op is Op.F:
            return [(kind, x) for kind, x in slots if kind.forward == q]
        return [(kind, x) for kind, x in slots if kind.backward == q and kind.op not in (Op.W, Op.R)]

    def _rises(self, rows: Sequence[tuple[int, int, int]], parts: Sequence[Sequence[int]]) -> None:
        """Add clauses for: the j-th row becomes true at t only with one of parts[t], and after the previous row."""
        for j, row in enumerate(rows):
            for t, some in enumerate(parts):
                before = self._at(rows[j - 1], t - 1) if j else TRUE
                self._add(-self._at(row, t), self._at(row, t - 1), *some)
                self._add(-self._at(row, t), before)
                for x in some:
                    self._add(-x, -before, self._at(row, t))
                    self._add(-x, -self._at(row, t - 1) if j == len(rows) - 1 else TRUE)

    def _ended(self, q: Stage, ends: Callable[[Kind], bool]) -> list[list[int]]:
        """Return, for each t, the variables of the slots that end at t on a stage's rank. ends: selects kinds."""
        made: list[list[int]] = [[] for _ in range(self.until + 1)]
        for t, slots in enumerate(self.slots[self.asked.rank[q]]):
            for kind, x in slots.items():
                if ends(kind):
                    made[t + kind.work].append(x)
        return made

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
        n, slots = self.asked.count[q], self.slots[self.asked.rank[q]]
        made = self._ended(q, lambda kind: kind.backward == q and kind.op in (Op.W, Op.B))
        self._rises([self.done[q, j] for j in range(n)], made)
        for t, some in enumerate(slots):
            for kind, x in some.items():
                if kind.backward == q and kind.op is Op.W:
                    self._add(-x, self._at(self.over[Op.I, q, 0], t))
                    for j in range(n):
                        after = self._at(self.over[Op.I, q, j + 1], t) if j + 1 < n else -TRUE
                        self._add(-x, -self._at(self.done[q, j], t), after)

    def _recomputed(self, q: Stage) -> None:
        """Add clauses for R: it runs after the F that runs again, and before the I or B of its microbatch."""
        a, n = self.asked, self.asked.count[q]
        left, back = ([rows[q, j] for j in range(n)] for rows in (self.left, self.back))
        self._rises(left, self._ended(q, lambda kind: kind.forward == q and kind.again))
        slots = self.slots[a.rank[q]]
        runs = [[x for kind, x in some.items() if kind.backward == q and kind.op is Op.R] for some in slots]
        self._rises(back, [*runs, []])
        for one, two in zip(left, back, strict=True):
            for t in range(two[0], self.until + 1):
                self._add(-self._at(two, t), self._at(one, t))
        known = self._known(q)
        for i in range(n):
            row, again = self.begun[Op.F, q, i], self.runs_again[q, i]
            for t in range(row[0], min(row[1], self.until - 1) + 1):
                for kind, x in self._parts(Op.F, q, t):
                    own = again if kind.again else -again
                    self._add(-x, -self._at(row, t), self._at(row, t - 1), own)
            row = self.begun[Op.I, q, i]
            for j in range(i + 1):
                for t in range(row[0], row[1] + 1):
                    over = self._at(back[j], t - a.work[Op.R, q])
                    self._add(-self._at(row, t), -again, -known[i][j], over)

    def _known(self, q: Stage) -> list[list[int]]:
        """Return, for each i and j, a literal that is implied if j + 1 of the first i + 1 F run again."""
        some = [self.runs_again[q, i] for i in range(self.asked.count[q])]
        if self.asked.again != EACH:
            for one, two in pairwise(some):
                self._add(-one, two)
                self._add(one, -two)
            return [[some[0]] * (i + 1) for i in range(len(some))]
        made = list[list[int]]()
        for i, x in enumerate(some):
            before = made[-1] if made else []
            now = [self._new() for _ in range(i + 1)]
            for j, y in enumerate(now):
                self._add(-before[j] if j < i else TRUE, y)
                self._add(-x, -before[j - 1] if j else -TRUE, y)
            made.append(now)
        return made

    def _held(self, rank: int, cap: int) -> None:
        a = self.asked
        mine = [q for q in a.all if a.rank[q] == rank]
        again = [q for q in mine if a.again and a.drops[q]]
        limit = cap + sum(a.takes[q] * a.count[q] for q in mine) + sum(a.drops[q] * a.count[q] for q in again)
        for t in range(self.until):
            parts, more = list[Number](), list[Number]()
            for q in mine:
                taken = [(i + 1, self._at(self.begun[Op.F, q, i], t)) for i in range(a.count[q])]
                parts += [_number(taken, a.takes[q]), self._yet(self.done, q, a.takes[q], t)]
            for q in again:
                retaken = [(j + 1, self._at(self.back[q, j], t)) for j in range(a.count[q])]
                more += [_number(retaken, a.drops[q]), self._yet(self.left, q, a.drops[q], t)]
            self._at_most(parts, more, limit)

    def _yet(self, rows: Mapping[tuple[Stage, int], tuple[int, int, int]], q: Stage, each: int, t: int) -> Number:
        """Return the number of a stage's rows that are still false at t, times `each`."""
        n = self.asked.count[q]
        return _number([(n - j, -self._at(rows[q, j], t)) for j in range(n)][::-1], each)

    def _at_most(self, parts: Sequence[Number], more: Sequence[Number], limit: int) -> None:
        """Add clauses for: the sum of all parts is at most the limit."""
        if sum(part[-1][0] for part in (*parts, *more)) <= limit:
            return
        one, two = self._total(parts), self._total(more)
        for value, x in one:
            over = next((y for v, y in two if value + v > limit), None)
            if over is not None:
                self._add(-x, -over)

    def _total(self, parts: Sequence[Number]) -> Number:
        total: Number = [(0, TRUE)]
        for part in parts:
            total = self._sum(total, part)
        return total


def _number(counts: Sequence[tuple[int, int]], each: int) -> Number:
    """Return a count times `each` as a unary number. counts: pairs (n, literal of "at least n") in ascending order."""
    sure = max((n for n, x in counts if x == TRUE), default=0)
    return [(sure * each, TRUE), *((n * each, x) for n, x in counts if n > sure and x != -TRUE)]
