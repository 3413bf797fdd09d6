"""The least time of two chains of parts that run side by side on the engines of one rank.

A part waits for the part before it in its chain, and an engine runs one part at a time: a job shop with two jobs. Akers
(1956) plots one job along x and the other job along y. A point is the progress of both jobs; two parts on the same
engine form an obstacle that no path enters; a diagonal step advances both jobs, and the shortest path from the origin
to the far corner is the optimum.

    b  |      ####
       |    / ####
       |  /
       |/_________ a

A path goes diagonally until it meets a wall. There one chain waits: the path goes past the upper left corner, where a
waits until b's part has ended, or past the lower right corner, where b waits. Decisions are therefore needed only at
the corners of walls, and the search takes the corners by their times plus a lower bound on the time that is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import accumulate, pairwise
from operator import add
from typing import TypeAlias

import numpy as np

Chain: TypeAlias = Sequence[tuple[int, str]]
"""The ticks and the engine of each part, in order."""
State: TypeAlias = tuple[int, int]
Times: TypeAlias = dict[State, int]
Steps: TypeAlias = dict[State, State]

_MOST = 50_000  # corners that are looked at, about a second
_GRID = 200_000  # states that may all be looked at, about 0.1 s
_FEW = 1_000  # corners that are looked at before that; nearly all pairs of a few layers need fewer
_WORD = 2**60


class TooLong(Exception):
    """Raised if the least time of two chains is not found within the budget."""


def pair(a: Chain, b: Chain) -> int:
    """Return the least time by which both chains have ended, if both may start at 0; parts are not interrupted.

    Raises:
        TooLong: if more corners would have to be examined than the budget allows.
    """
    return begun(a, b)[0]


def begun(a: Chain, b: Chain) -> tuple[int, list[int], list[int]]:
    """Return the least time, as `pair` does, and the start times of both chains' parts in an order that attains it.

    Raises:
        TooLong: as for `pair`.
    """
    shop = _Shop([part for part in a if part[0]], [part for part in b if part[0]])
    few = shop.end[0] * shop.end[1] <= _GRID
    try:
        best, came = shop.searched(_FEW if few else _MOST)
    except TooLong:
        if not few:
            raise
        best, came = shop.swept()
    return best[shop.end], *shop.starts(best, came)


class _Shop:
    """Two chains of parts, and the steps from corner to corner. In state (i, j), i parts of a and j parts of b are
    done.
    """

    def __init__(self, a: Chain, b: Chain) -> None:
        self.engine = [engine for _, engine in a], [engine for _, engine in b]
        self.at = [0, *accumulate(ticks for ticks, _ in a)], [0, *accumulate(ticks for ticks, _ in b)]
        self.end = len(a), len(b)
        engines: list[str] = sorted({engine for _, engine in (*a, *b)})
        self.left = self._left(a, 0, engines), self._left(b, 1, engines)

    @staticmethod
    def _left(chain: Chain, number: int, engines: Sequence[str]) -> list[tuple[int, ...]]:
        """Return, for every number of finished parts, the ticks left for each chain and each engine. number: 0 or 1."""
        rows = [[ticks if number == which else 0 for ticks, _ in chain] for which in (0, 1)]
        rows += [[ticks if on == engine else 0 for ticks, on in chain] for engine in engines]
        return [*zip(*([0, *accumulate(reversed(row))] for row in rows), strict=True)][::-1]

    def rest(self, i: int, j: int) -> int:
        """Return a lower bound on the time from a state to the end: the rest of the longer chain, or of the busiest
        engine.
        """
        bounds: list[int] = [*map(add, self.left[0][i], self.left[1][j])]
        return max(bounds)

    def after(self, i: int, j: int) -> tuple[tuple[int, int, int], ...]:
        """Return the next states and their times: both chains run until two parts need the same engine; then one chain
        waits.
        """
        (x, y), (one, other), (most, end) = self.at, self.engine, self.end
        u, v = x[i], y[j]
        n, m, ahead = i, j, u - v
        while n < most and m < end:
            if one[n] == other[m]:
                return (
                    (max(x[n] - u, y[m + 1] - v), n, m + 1),
                    (max(x[n + 1] - u, y[m] - v), n + 1, m),
                )
            to, by = x[n + 1], y[m + 1] + ahead
            if to <= by:
                n += 1
            if by <= to:
                m += 1
        return ((max(x[-1] - u, y[-1] - v), most, end),)

    def dived(self) -> int:
        """Return an upper bound: the time of a path that goes to the corner with the least lower bound at each wall."""
        time, i, j = 0, 0, 0
        while (i, j) != self.end:
            later, i, j = min(self.after(i, j), key=lambda to: to[0] + self.rest(*to[1:]))
            time += later
        return time

    def searched(self, most: int) -> tuple[Times, Steps]:
        """Return the least time to each state, as far as needed, and the state before it. The state with the least
        lower bound is always examined next. most: the number of states from which steps are taken.

        Raises:
            TooLong: if `most` states are not enough.
        """
        best: Times = {(0, 0): 0}
        came: Steps = {}
        queue = [(self.rest(0, 0), 0, 0, 0)]  # bound, time before it with its sign changed: of equal bounds the latest
        while True:
            _, before, i, j = heappop(queue)
            time = -before
            if (i, j) == self.end:
                return best, came
            if time > best[i, j]:
                continue
            if len(came) > most:
                raise TooLong
            for later, x, y in self.after(i, j):
                then = time + later
                if (x, y) not in best or then < best[x, y]:
                    best[x, y], came[x, y] = then, (i, j)
                    heappush(queue, (then + self.rest(x, y), -then, x, y))

    def swept(self) -> tuple[Times, Steps]:
        """Return the least times and the previous states along one best path, as `searched` does. No step goes back in
        a row or a column, so the states are taken row by row, without a queue; states whose bound is above the time of
        a known path are left out.

        A state takes a quarter of the time that it takes in `searched`, since the steps of `after` are inlined.
        """
        (x, y), (one, other), (rows, columns) = self.at, self.engine, self.end
        most, width = self.dived(), columns + 1
        left = [np.array(of, dtype=object if most > _WORD else np.int64) for of in self.left]
        times, came = [most + 1] * (width * (rows + 1)), [0] * (width * (rows + 1))
        times[0], last = 0, len(times) - 1
        for i in range(rows + 1):
            latest = (most - (left[0][i] + left[1]).max(axis=1)).tolist()
            for here, j in enumerate(range(width), i * width):
                if times[here] > latest[j]:
                    continue
                n, m, u, v = i, j, times[here] - x[i], times[here] - y[j]
                while n < rows and m < columns and one[n] != other[m]:
                    to, by = x[n + 1] + u, y[m + 1] + v
                    if to <= by:
                        n += 1
                    if by <= to:
                        m += 1
                if n == rows or m == columns:
                    if (then := max(x[-1] + u, y[-1] + v)) < times[last]:
                        times[last], came[last] = then, here
                    continue
                corner = n * width + m + 1
                if (then := max(x[n] + u, y[m + 1] + v)) < times[corner]:
                    times[corner], came[corner] = then, here
                corner += columns
                if (then := max(x[n + 1] + u, y[m] + v)) < times[corner]:
                    times[corner], came[corner] = then, here
        return _traced(times, came, width)

    def starts(self, best: Times, came: Steps) -> tuple[list[int], list[int]]:
        """Return the start times of the parts of both chains, which do not wait between consecutive states."""
        found: tuple[list[int], list[int]] = ([0] * self.end[0], [0] * self.end[1])
        at = self.end
        while at in came:
            before = came[at]
            for starts, sums, low, high in zip(found, self.at, before, at, strict=True):
                starts[low:high] = [best[before] + sums[k] - sums[low] for k in range(low, high)]
            at = before
        return found


def _traced(times: Sequence[int], came: Sequence[int], width: int) -> tuple[Times, Steps]:
    """Return the states on the best path to the last state; the times and steps of all states are given row by row."""
    path = [len(times) - 1]
    while path[-1]:
        path.append(came[path[-1]])
    at = [divmod(here, width) for here in path]
    return {state: times[here] for state, here in zip(at, path, strict=True)}, dict(pairwise(at))
