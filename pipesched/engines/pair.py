"""The least time of two chains of parts that run side by side on the engines of one rank.

A part waits for the part before it in its chain, and an engine runs one part at a time: a job shop with two jobs. Akers
(1956) draws one job along x and the other along y. A point is the progress of both; two parts of one engine are an
obstacle that no path enters; a diagonal step advances both jobs, and the shortest path from the origin to the far
corner is the optimum.

    b  |      ####          A path goes diagonally until it meets a wall. There one chain waits: past the upper left
       |    / ####          corner, where a waits until b's part has ended, or past the lower right one, where b waits.
       |  /                 So only the corners of walls are places to decide, and the best of them is found by their
       |/_________ a        times plus what must still run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from itertools import accumulate
from operator import add
from typing import TypeAlias

Chain: TypeAlias = Sequence[tuple[int, str]]
"""Parts in order: ticks and engine."""


_MOST = 50_000  # corners that are looked at, about a second


class TooLong(Exception):
    """Raised if the least time of two chains is not found within the budget."""


def pair(a: Chain, b: Chain) -> int:
    """Return the least time at which both chains have ended, if both may start at 0; parts are not interrupted.

    Raises:
        TooLong: if more corners would have to be examined than the budget allows.
    """
    return begun(a, b)[0]


def begun(a: Chain, b: Chain) -> tuple[int, list[int], list[int]]:
    """Return the least time, as `pair` does, and the starts of the parts of both chains in an order with this time.

    Raises:
        TooLong: as for `pair`.
    """
    shop = _Shop([part for part in a if part[0]], [part for part in b if part[0]])
    best: dict[tuple[int, int], int] = {(0, 0): 0}
    came: dict[tuple[int, int], tuple[int, int]] = {}
    queue = [(shop.rest(0, 0), 0, 0, 0)]  # bound, and the negative time before it: of equal bounds the latest
    while queue:
        _, before, i, j = heappop(queue)
        time = -before
        if (i, j) == shop.end:
            return time, *shop.starts(best, came)
        if time > best[i, j]:
            continue
        if len(came) > _MOST:
            raise TooLong
        for later, x, y in shop.after(i, j):
            then = time + later
            if (x, y) not in best or then < best[x, y]:
                best[x, y], came[x, y] = then, (i, j)
                heappush(queue, (then + shop.rest(x, y), -then, x, y))
    raise AssertionError("the far corner is always reached")


class _Shop:
    """Two chains, and the steps from corner to corner. In state (i, j), i parts of a and j parts of b are done."""

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
        """Return a lower bound on the time from a state to the end: the longer chain, or the fullest engine."""
        bounds: list[int] = [*map(add, self.left[0][i], self.left[1][j])]
        return max(bounds)

    def after(self, i: int, j: int) -> list[tuple[int, int, int]]:
        """Return the next states, each with the time until it. Both chains run until two parts need the same engine;
        then one of them waits.
        """
        (x, y), (one, other) = self.at, self.engine
        u, v, gone = x[i], y[j], 0
        n, m = i, j
        while n < self.end[0] and m < self.end[1]:
            if one[n] == other[m]:
                return [
                    (max(x[n] - u, y[m + 1] - v), n, m + 1),
                    (max(x[n + 1] - u, y[m] - v), n + 1, m),
                ]
            gone = min(x[n + 1] - u, y[m + 1] - v)
            n, m = n + (x[n + 1] - u == gone), m + (y[m + 1] - v == gone)
        return [(max(x[-1] - u, y[-1] - v), *self.end)]

    def starts(
        self, best: Mapping[tuple[int, int], int], came: Mapping[tuple[int, int], tuple[int, int]]
    ) -> tuple[list[int], list[int]]:
        """Return the starts of the parts of both chains, which do not wait between one state and the next."""
        found: tuple[list[int], list[int]] = ([0] * self.end[0], [0] * self.end[1])
        at = self.end
        while at in came:
            before = came[at]
            for starts, sums, low, high in zip(found, self.at, before, at, strict=True):
                starts[low:high] = [best[before] + sums[k] - sums[low] for k in range(low, high)]
            at = before
        return found
