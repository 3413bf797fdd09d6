"""The zero-bubble heuristic: one F and one I at a time on every rank, W in gaps or when the cap is reached.

From Qi et al., ICLR 2024, arXiv:2401.10241, section 3.1 (ZB-1p and ZB-2p are its results at caps p and 2p). The
heuristic is for one stage per rank; here it allows any caps, release rules and costs by stage.

    1  F0 down the ranks; then, from the last rank up, as many more F as fit before the first I arrives; I0 up
    2  for every microbatch: choose the ranks that run an F, and run these F down the ranks; then I up the ranks;
       before each of them run W while one fits into the gap, or while the cap has no room for F
    3  the remaining W

Three choices are tried both ways: whether an extra F of step 1 can end late, whether a rank that is two ahead of the
next one prefers I to F, and whether a W can enlarge the largest bubble.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from pipesched.model.ops import Op
from pipesched.optimizer.solve.portfolio.shape import way
from pipesched.optimizer.solve.problem import Orders, Problem


def zero_bubble(problem: Problem) -> Iterator[tuple[str, Orders]]:
    """Yield the orders of all eight choices; no orders if the placement is not linear or the backward is fused."""
    ranks = way(problem, "linear")
    if ranks and not problem.fused:
        for late, backward, fill in product((False, True), repeat=3):
            orders = _Run(problem, ranks, late=late, backward=backward, fill=fill).all()
            if orders is not None:
                yield "zero-bubble heuristic", orders


class _Run:
    """A run of the heuristic. Tables are by position; end: last end so far; bubble: idle time since the first F."""

    def __init__(self, problem: Problem, ranks: tuple[int, ...], *, late: bool, backward: bool, fill: bool) -> None:
        self.problem, self.ranks = problem, ranks
        self.late, self.backward, self.fill = late, backward, fill
        self.size, self.length = len(ranks), problem.placement.microbatches
        kinds = zip(problem.op.tolist(), problem.stage.tolist(), strict=True)
        table = dict(zip(kinds, range(len(problem.op)), strict=True))
        self.q = [[table[int(op), j] for j in range(self.size)] for op in (Op.F, Op.I, Op.W)]
        columns = (problem.duration, problem.takes, problem.frees, problem.first)
        self.cost, self.takes, self.frees, self.number = ([x[row].tolist() for row in self.q] for x in columns)
        self.cap = [int(problem.cap[rank]) for rank in ranks]
        lag = {(int(b), int(a)): int(x) for b, a, x in zip(problem.before, problem.after, problem.lag, strict=True)}
        self.down = [0] + [lag[self.q[0][j - 1], self.q[0][j]] for j in range(1, self.size)]
        self.up = [lag[self.q[1][j + 1], self.q[1][j]] for j in range(self.size - 1)] + [0]
        self.done = [[0] * self.size for _ in range(3)]
        self.ends: list[list[list[int]]] = [[[] for _ in range(self.size)] for _ in range(3)]
        self.end, self.held, self.bubble = ([0] * self.size for _ in range(3))
        self.orders: list[list[int]] = [[] for _ in range(problem.ranks)]
        self.extra = [max(0, -x) for x in self.frees[1]]

    def all(self) -> Orders | None:
        """Run the heuristic; return the orders, or None if a cap is below one microbatch."""
        if any(self.takes[0][j] + self.extra[j] > self.cap[j] for j in range(self.size)):
            return None
        self._first()
        for i in range(1, self.length):
            for j, wanted in enumerate(self._forwards(i)):
                if wanted:
                    self._make_room(j, self.takes[0][j] + self.extra[j])
                    self._fill(j, self._arrival(0, j))
                    self._put(0, j)
            for j in range(self.size - 1, -1, -1):
                self._make_room(j, self.extra[j])
                self._fill(j, self._arrival(1, j))
                if j == 0 and self.done[0][0] >= self.length:
                    self._flush(0)
                self._put(1, j)
        for j in range(self.size):
            self._flush(j, all_of_them=True)
        return self.orders

    def _arrival(self, kind: int, j: int) -> int:
        """Return the time at which the input of the next F or I arrives."""
        i = self.done[kind][j]
        if kind == 0:
            return self.ends[0][j - 1][i] + self.down[j] if j else 0
        return self.ends[1][j + 1][i] + self.up[j] if j + 1 < self.size else self.ends[0][j][i]

    def _put(self, kind: int, j: int) -> None:
        i, cost = self.done[kind][j], self.cost[kind][j]
        start = max(self.end[j], self._arrival(kind, j)) if kind < 2 else self.end[j]
        if order := self.orders[self.ranks[j]]:
            self.bubble[j] += start - self.end[j]
        self.end[j] = start + cost
        self.ends[kind][j].append(start + cost)
        self.done[kind][j] = i + 1
        self.held[j] += self.takes[kind][j] - self.frees[kind][j]
        order.append(self.number[kind][j] + i)

    def _waiting(self, j: int) -> bool:
        return self.done[2][j] < self.done[1][j]

    def _make_room(self, j: int, parts: int) -> None:
        while self.held[j] + parts > self.cap[j] and self._waiting(j):
            self._put(2, j)

    def _flush(self, j: int, *, all_of_them: bool = False) -> None:
        while self._waiting(j) or (all_of_them and self.done[2][j] < self.length):
            self._put(2, j)

    def _fill(self, j: int, arrival: int) -> None:
        """Run W while one fits into the gap; run one more if `fill`, or if the gap would enlarge the largest bubble."""
        while self._waiting(j) and self.end[j] + self.cost[2][j] <= arrival:
            self._put(2, j)
        if self._waiting(j) and self.end[j] < arrival:
            gap = arrival - self.end[j]
            if self.fill or gap > max(self.bubble) - self.bubble[j]:
                self._put(2, j)

    def _first(self) -> None:
        """Run step 1: the warm-up, and the first I."""
        for j in range(self.size):
            self._put(0, j)
        more = [0] * self.size
        incoming = self.end[-1] + self.cost[1][-1]
        for j in range(self.size - 2, -1, -1):
            clock, held, by = self.end[j], self.held[j], incoming + self.up[j]
            while 1 + more[j] < self.length and held + self.takes[0][j] + self.extra[j] <= self.cap[j]:
                if (clock if self.late else clock + self.cost[0][j] - 1) >= by:
                    break
                clock, held, more[j] = clock + self.cost[0][j], held + self.takes[0][j], more[j] + 1
            incoming = max(clock, by) + self.cost[1][j]
        for j in range(1, self.size):
            while more[j] and more[j] >= more[j - 1] and 1 + more[j] < self.length:
                more[j] -= 1
        for j in range(1, self.size):
            more[j] = min(more[j], more[j - 1])
        for j in range(self.size):
            for _ in range(more[j]):
                self._put(0, j)
        for j in range(self.size - 1, -1, -1):
            self._make_room(j, self.extra[j])
            self._put(1, j)

    def _forwards(self, i: int) -> list[bool]:
        """Choose the positions that run an F in step 2, because their successor runs an F too or because they must."""
        wanted = [self._wants(j) for j in range(self.size)]
        for j in range(self.size - 2, -1, -1):
            wanted[j] = wanted[j] and (wanted[j + 1] or self.done[0][j + 1] >= self.length)
        return [want or self.done[0][j] <= i for j, want in enumerate(wanted)]

    def _wants(self, j: int) -> bool:
        forwards = self.done[0][j]
        if forwards >= self.length:
            return False
        put_off = self.done[1][j] - self.done[2][j]
        if self.held[j] - put_off * self.frees[2][j] + self.takes[0][j] + self.extra[j] > self.cap[j]:
            return False
        if self.backward and j + 1 < self.size and forwards >= self.done[0][j + 1] + 2:
            if (
                self.end[j] + self.cost[0][j]
                <= self.end[j + 1] + self.cost[0][j + 1] + self.cost[1][j + 1] + self.up[j]
            ):
                return True
            begin = max(self.end[j], self.ends[1][j + 1][-1] + self.up[j])
            return bool(self.end[j] + self.cost[0][j] - begin <= max(self.bubble) - self.bubble[j])
        return True
