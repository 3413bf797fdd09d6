"""Clauses satisfied by every schedule with an objective of at most C, derived only from its terms.

    y(q,i,t)    operation i of line q has started by t: false before its time window, true from the window's end on
    run(q,t)    an operation of line q runs at t

    start       y(q,i,t) -> y(q,i,t+1)
    order       y(q,i,t) -> y(q,i-1,t-work)                a line keeps the order of microbatches, which are alike
    chain       y(b,i,t) -> y(a,i,t-work-message)          a before b
    machine     y(q,i,t) and not y(q,i,t-work) -> run(q,t), and no two lines of a rank run at the same time
    memory      at every t: taken by started operations + not yet freed by running or later ones <= cap + all frees
    W           at every t, where the W of a rank are one line: started W + I that have not ended <= all I
    span        the first of a rank has started by t -> the last has ended by t + C

With `narrow`, time windows are first narrowed by the possible orders of each rank (`ranks`): starts that occur in no
order have no variables, which often reduces the number of clauses to a tenth.

If the clauses contradict each other, no such schedule exists. All times are multiples of one tick, since a schedule
starts every operation as early as possible; an operation of duration 0 does not occupy its rank.

Sums are unary numbers: pairs (value, literal of "the sum is at least the value") in ascending order; the first literal
is always true. If a sum reaches a value, the value's literal must be true. Freed memory is not subtracted; instead,
memory that is not yet freed is added, and the limit is raised by all memory that will be freed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterator
from dataclasses import replace
from itertools import combinations, pairwise, product
from typing import TypeAlias

from pipesched.model.ops import Op
from pipesched.optimizer.proof.problem import Line, Problem
from pipesched.optimizer.proof.ranks import narrow as narrowed
from pipesched.optimizer.proof.windows import Windows

TRUE = 2**40
"""The literal that is always true; -TRUE is false."""

Number: TypeAlias = list[tuple[int, int]]


MOST = 2_500_000
"""Limit on the number of clauses in a proof."""


class TooManyError(Exception):
    """Raised if a proof needs too many clauses."""

    def __init__(self, most: int) -> None:
        super().__init__(f"its terms result in more than {most:,} clauses, the limit for a proof")


class Numbered:
    """Clauses and variables, numbered as they are added; raises TooManyError at `most` clauses.

    wanted: the numbers of the requested clauses, or None for all; known: for each of these numbers, the literals of the
    clause; count: the number of all clauses.
    """

    def __init__(self, wanted: Container[int] | None, most: int) -> None:
        self.wanted, self.most = wanted, most
        self.known: dict[int, list[int]] = {}
        self.count = self.variables = 0

    def dimacs(self) -> Iterator[str]:
        """Yield the lines of a DIMACS file, for other engines and checkers."""
        yield f"p cnf {self.variables} {self.count}\n"
        for literals in self.known.values():
            yield " ".join(map(str, [*literals, 0])) + "\n"

    def _add(self, *literals: int) -> None:
        if TRUE in literals:
            return
        self.count += 1
        if self.count == self.most:
            raise TooManyError(self.most)
        if self.wanted is None or self.count in self.wanted:
            self.known[self.count] = [x for x in literals if x != -TRUE]

    def _new(self) -> int:
        self.variables += 1
        return self.variables

    def _sum(self, one: Number, two: Number) -> Number:
        """Add two sums: at least u and at least v imply at least u + v."""
        if len(one) == 1 or len(two) == 1:  # one of the two is constant
            return [(u + v, min(x, y)) for u, x in one for v, y in two]
        values = sorted({u + v for u, _ in one for v, _ in two})
        literal = {v: self._new() if n else TRUE for n, v in enumerate(values)}
        for (u, x), (v, y) in product(one, two):
            self._add(-x, -y, literal[u + v])
        for low, high in pairwise(values):
            self._add(-literal[high], literal[low])
        return [(v, literal[v]) for v in values]


class Clauses(Numbered):
    """The clauses of a problem.

    of_rank: for each rank, the numbers of the clauses that concern only that rank. narrowed: the number of steps taken
    to narrow the time windows.
    """

    def __init__(
        self,
        problem: Problem,
        bound: int,
        *,
        wanted: Container[int] | None = None,
        most: int = MOST,
        narrow: bool = False,
    ) -> None:
        """Build the clauses; raise TooManyError if there are more than `most` clauses or operations."""
        super().__init__(wanted, most)
        if sum(problem.length.values()) > most:
            raise TooManyError(most)
        tick = problem.tick
        arcs = [(before, after, offset, message // tick) for before, after, offset, message in problem.arcs]
        work = {line: x // tick for line, x in problem.work.items()}
        self.bound, self.span = bound // tick, problem.span
        self.of_rank: list[range] = []
        first = next(iter(problem.rank.values())) if problem.span else None
        self.windows = Windows(replace(problem, work=work, arcs=arcs, known={}), self.bound, first)
        self.windows.spread()
        possible, self.narrowed = narrowed(self.windows) if narrow else (True, 0)
        self.windows.shift(-min(low[0] for low in self.windows.low.values()))
        if possible and self.windows.possible():
            self._write()
        else:
            self._add()

    def _write(self) -> None:
        windows = self.windows
        self.until = 1 + max((high[-1] + windows.work[line] for line, high in windows.high.items() if high), default=0)
        self.base = self._bases()
        if max(self.variables, self.until * len(windows.cap)) > self.most:
            raise TooManyError(self.most)
        for line in windows.order:
            self._line(line)
        for before, after, offset, message in windows.arcs:
            if not offset:
                for i in range(windows.length[after]):
                    self._after(after, i, before, i, windows.work[before] + message)
        for rank in range(len(windows.cap)):
            first = self.count + 1
            self._rank(windows, rank)
            self.of_rank.append(range(first, self.count + 1))

    def _bases(self) -> dict[Line, list[int]]:
        """Return, for each operation, the offset of its variables: the variable for t in its window is offset + t."""
        made: dict[Line, list[int]] = {}
        for line in self.windows.order:
            made[line] = []
            for low, high in zip(self.windows.low[line], self.windows.high[line], strict=True):
                made[line].append(self.variables + 1 - low)
                self.variables += max(0, high - low)
        return made

    def _rank(self, windows: Windows, rank: int) -> None:
        mine = [line for line in windows.order if windows.rank[line] == rank]
        self._machine([line for line in mine if windows.work[line]])
        self._memory(mine, windows.cap[rank])
        self._merged(mine)
        if self.span:
            self._span(mine)

    def _y(self, line: Line, i: int, t: int) -> int:
        low, high = self.windows.low[line][i], self.windows.high[line][i]
        return TRUE if t >= high else -TRUE if t < low else self.base[line][i] + t

    def _line(self, line: Line) -> None:
        low, high, work = self.windows.low[line], self.windows.high[line], self.windows.work[line]
        for i in range(len(low)):
            for x in range(self.base[line][i] + low[i], self.base[line][i] + high[i] - 1):
                self._add(-x, x + 1)
            if i:
                self._after(line, i, line, i - 1, work)

    def _after(self, after: Line, i: int, before: Line, j: int, delay: int) -> None:
        """Add clauses for: operation i of `after` starts at least `delay` after operation j of `before`."""
        low, high = self.windows.low[after][i], self.windows.high[after][i]
        for t in range(low, min(high + 1, self.windows.high[before][j] + delay)):
            self._add(-self._y(after, i, t), self._y(before, j, t - delay))

    def _machine(self, lines: list[Line]) -> None:
        running: list[dict[int, int]] = []
        for line in lines:
            work, runs = self.windows.work[line], {}
            for i, (low, high) in enumerate(zip(self.windows.low[line], self.windows.high[line], strict=True)):
                for t in range(low, high + work):
                    if t not in runs:
                        runs[t] = self._new()
                    self._add(-self._y(line, i, t), self._y(line, i, t - work), runs[t])
            running.append(runs)
        for one, two in combinations(running, 2):
            for t in one:
                if t in two:
                    self._add(-one[t], -two[t])

    def _memory(self, lines: list[Line], cap: int | None) -> None:
        gains = self.windows.gains
        freed = sum(max(0, -gains[line]) * self.windows.length[line] for line in lines)
        for t in range(self.until):
            if cap is not None:
                self._at_most([self._number(line, t, gains[line]) for line in lines if gains[line]], cap + freed)

    def _merged(self, lines: list[Line]) -> None:
        for line in lines:
            inputs = self.windows.inputs.get(line, [])
            for t in range(self.until) if inputs else ():
                parts = [self._number(line, t, 1), *(self._number(one, t, -1) for one in inputs)]
                self._at_most(parts, self.windows.length[line])

    def _span(self, lines: list[Line]) -> None:
        for first in lines:
            for last in lines if first.op == Op.F else ():
                self._after(first, 0, last, -1, self.windows.work[last] - self.bound)

    def _number(self, line: Line, t: int, each: int) -> Number:
        """Return each * (operations started by t) or, if `each` is negative, -each * (operations not ended by t)."""
        t -= 0 if each > 0 else self.windows.work[line]
        low, high = bisect_right(self.windows.high[line], t), bisect_right(self.windows.low[line], t)
        if each > 0:
            return [(low * each, TRUE), *(((i + 1) * each, self.base[line][i] + t) for i in range(low, high))]
        left = [(n, self.windows.length[line] - n) for n in range(high - 1, low - 1, -1)]
        sure = self.windows.length[line] - high
        return [(-sure * each, TRUE), *((-n * each, -self.base[line][i] - t) for i, n in left)]

    def _at_most(self, parts: list[Number], limit: int) -> None:
        """Add clauses for: the sum of the parts is at most the limit."""
        if sum(part[-1][0] for part in parts) <= limit:
            return
        total: Number = [(0, TRUE)]
        for part in parts[:-1]:
            total = self._sum(total, part)
        for u, x in total:
            over = [y for v, y in parts[-1] if u + v > limit]
            if over:
                self._add(-x, -over[0])
