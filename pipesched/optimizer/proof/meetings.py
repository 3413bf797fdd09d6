"""A lower bound for many microbatches under small caps: two microbatches that meet wait for each other.

It requires one stage per rank, and a rank h, the home, whose memory is full, so that F of microbatch a + k starts there
only after an operation of microbatch a has ended. For two microbatches a < b, let r be the last rank, counted from h
on, that runs F(b) before I(a), or h - 1 if there is none. Ranks after r run I(a) first: F(b) reaches a rank later than
the previous rank, and I(a) reaches it earlier. So a waits for b on rank r, and b waits for a on rank r + 1:

    rank r + 1   .. I(a) ───┐  F(b) ..        F(b) on r + 1 starts after the end of I(a) on r + 1
    rank r       .. F(b) ─┐    I(a) ..        I(a) on r     starts after the end of F(b) on r

The next microbatch a + k starts after a, and meets b. The bound follows a chain of pairs whose microbatches meet:

    (0, 1)   (1, k)   (k, k + 1)   (k + 1, 2k)   ...

Since r is unknown, the bound keeps a state for every r: the earliest starts of I(a) on r and of F(b) on r + 1. At the
end, the least value over all states is the bound.

    home     At least w + y (F + I + w) pass between the end of I(a) and the start of F(a + k + y): F of y microbatches,
             their I, and y + 1 times w, which is W if memory waits for it and 0 otherwise
    switch   If m - 1 = nk + x with x >= 2, one pair (a, a + 1) is followed by (a + k + x - 1, a + k + x)
    end      The last pair is followed by the tails of its operations and, on each rank that I(a) passes, by the rest of
             the work of microbatches from a on

Ranks before the home affect only heads and tails. For the span, heads and tails are measured in the frame of the home.
For full backwards, B takes the place of I. For unit costs without messages, on a linear placement on p ranks, the bound
is (n + 1) (2p + 2) + 3x - 2: a round trip takes 2p + 2, although no single rank requires more than 2p + 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipesched.model.columns import Ints
from pipesched.model.ops import Op
from pipesched.optimizer.proof.problem import UNKNOWN, Line, Problem

_POINTS = 12  # most states of one rank; beyond that, earlier states replace several
_HOMES, _MOST = 4, 1_500  # candidates for the home; most meetings of a walk


def meetings(problem: Problem) -> tuple[int, str]:
    """Return the best of these bounds in ticks, with its explanation; 0 if no bound applies."""
    made = [found for home in _homes(problem) for found in _walks(home)]
    return max(made, key=lambda one: one[0], default=(0, ""))


@dataclass(frozen=True, eq=False)
class Home:
    """A rank chosen as home, with the ranks after it. Times are in ticks; arrays are int64, with an entry for each rank
    from the home on.

    k: F of microbatch a + k waits for microbatch a at home. back: I or B. f, i, w: durations of F, back and W. forward,
    inward: the ends of F and of back if F starts at 0 at home. freed: the duration of W at home if memory waits for it,
    otherwise 0.
    """

    problem: Problem
    rank: int
    k: int
    back: Op
    forward: Ints
    inward: Ints
    f: Ints
    i: Ints
    w: Ints
    freed: int

    def gap(self, y: int) -> int:
        """Return the least time from the end of I(a) at home to the start of F(a + k + y) there."""
        return self.freed + y * (int(self.f[0]) + int(self.i[0]) + self.freed)


@dataclass(frozen=True, eq=False)
class States:
    """The states of a pair (a, b); int64, shape (states,). at: r, counted from the home; -1 for the rank before the
    home.

    first: the earliest start of I(a) on r, or its end at home if r = -1. second: the earliest start of F(b) on r + 1,
    or of I(b) on r if r is the last rank.
    """

    at: Ints
    first: Ints
    second: Ints


def _homes(problem: Problem) -> list[Home]:
    """Return the homes with the longest round trips; empty unless there is one route and rank r has just stage r."""
    ranks = range(len(problem.cap))
    if [(x.route, x.stage, r) for x, r in problem.rank.items() if x.op == Op.F] != [(0, s, s) for s in ranks]:
        return []
    back = Op.I if Line(Op.I, 0, 0) in problem.rank else Op.B
    work = [np.array([problem.work.get(Line(op, 0, s), 0) for s in ranks]) for op in (Op.F, back, Op.W)]
    if min(map(min, work[:2])) <= 0:
        return []
    waits = [(one.op, two.stage, k) for one, two, k, _ in problem.arcs if two.op == Op.F != one.op]
    long_enough = [(op, s, k) for op, s, k in waits if 2 <= k < problem.length[Line(Op.F, 0, s)]]
    found = [_home(problem, s, k, back, [x[s:] for x in work], op == Op.W) for op, s, k in long_enough]
    return sorted(found, key=lambda home: -(int(home.inward[0]) + home.gap(0)) / home.k)[:_HOMES]


def _home(problem: Problem, rank: int, k: int, back: Op, work: list[Ints], late: bool) -> Home:
    f, i, w = work
    lag = {(one, two): more for one, two, offset, more in problem.arcs if not offset}
    last = len(problem.cap) - 1
    out = [lag[Line(Op.F, 0, s), Line(Op.F, 0, s + 1)] for s in range(rank, last)]
    home = [lag[Line(back, 0, s + 1), Line(back, 0, s)] for s in range(rank, last)]
    forward: Ints = np.cumsum(f + np.array([0, *out]))
    inward: Ints = forward[-1] + np.cumsum((i + np.array([*home, 0]))[::-1])[::-1]
    freed = int(w[0]) if late else 0
    return Home(problem, rank, k, back, forward=forward, inward=inward, f=f, i=i, w=w, freed=freed)


def _walks(home: Home) -> Iterator[tuple[int, str]]:
    """Yield (bound, explanation) for one home, n round trips, and the x microbatches that remain, for several n."""
    k, m = home.k, home.problem.length[Line(Op.F, 0, home.rank)]
    q = (m - 1) // k
    if 2 * q > _MOST:
        return
    heads = home.problem.heads(home.rank if home.problem.span else None)[Line(Op.F, 0, home.rank)]
    walk = [_met(home, np.array(heads[:1]), np.array(heads[1:2]))]
    for _ in range(2 * q - 1):
        walk.append(_met(home, *_next(home, walk[-1])))
    walk += [_met(home, *_next(home, walk[-1]))] * ((m - 1) % k > 0)
    for n in sorted({1, q - 1, q} - {0}):
        x = m - 1 - n * k
        if x >= 2:
            yield _told(home, n, _end(home, _met(home, *_apart(home, walk[2 * n - 2], x)), m - 2, m - 1))
        a, b = (n * k, n * k + 1) if x else (m - k, m - 1)
        yield _told(home, n, _end(home, walk[2 * n - (x == 0)], a, b))


def _told(home: Home, n: int, value: int) -> tuple[int, str]:
    trips = f"{n} round trip{'s' * (n > 1)}"
    why = f"rank {home.rank} holds {home.k} at most, and in {trips} microbatches that meet wait for each other"
    return value, why


def _met(home: Home, begun: Ints, follows: Ints) -> States:
    """Return the undominated states of two microbatches. begun, follows: int64, equal shapes; the times at which their
    F would start at home if nothing had delayed them.
    """
    begun, follows = begun[:, None], follows[:, None]
    first = np.maximum(begun + (home.inward - home.i), follows + home.forward)
    second = np.maximum(follows + (home.forward - home.f), begun + home.inward)
    first = np.hstack([begun + home.inward[0], first])
    second = np.hstack([second, first[:, -1:] + home.i[-1]])
    found = [_ahead(r - 1, first[:, r], second[:, r]) for r in range(len(home.f) + 1)]
    return States(*(np.concatenate(column) for column in zip(*found, strict=True)))


def _ahead(at: int, first: Ints, second: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the undominated states at one r; if there are too many, one state that dominates several replaces them."""
    order = np.lexsort((second, first))
    first, second = first[order], second[order]
    kept = np.concatenate([[True], second[1:] < np.minimum.accumulate(second)[:-1]])
    first, second = first[kept], second[kept]
    each = -(-len(first) // _POINTS)
    first, second = first[::each], np.minimum.reduceat(second, np.arange(0, len(second), each))
    return np.full(len(first), at), first, second


def _times(home: Home, states: States) -> tuple[Ints, Ints]:
    """Return (end of I(a) at home, start of F(b) at home that leads to the state if nothing delays it)."""
    r, last = states.at, len(home.f) - 1
    ended = np.where(r < 0, states.first, states.first + home.i[r] + home.inward[0] - home.inward[r])
    ahead = np.minimum(r + 1, last)
    begun = np.where(r < last, home.forward[ahead] - home.f[ahead], home.inward[-1] - home.i[-1])
    return ended, states.second - begun


def _next(home: Home, states: States) -> tuple[Ints, Ints]:
    """Return the starts of F at home for the pair (b, a + k) that follows (a, b)."""
    ended, begun = _times(home, states)
    return begun, ended + home.gap(0)


def _apart(home: Home, states: States, x: int) -> tuple[Ints, Ints]:
    """Return the starts of F at home for the pair (a + k + x - 1, a + k + x) that follows (a, a + 1); x >= 2."""
    ended, begun = _times(home, states)
    later = begun + home.inward[0]
    return tuple(np.maximum(ended + home.gap(n), later + home.gap(n - 1)) for n in (x - 1, x))


def _end(home: Home, states: States, a: int, b: int) -> int:
    """Return the least objective, in ticks, if a and b are the last pair that meets."""
    problem, r, last = home.problem, states.at, len(home.f) - 1
    tails = problem.tails(home.rank if problem.span else None)
    left = problem.length[Line(Op.F, 0, home.rank)] - 1 - a
    ended, _ = _times(home, states)
    lines = ((Line(home.back, 0, home.rank), a), (Line(Op.F, 0, home.rank), b))
    rest, own = (np.array([tails[x._replace(stage=x.stage + s)][i] for s in range(last + 1)]) for x, i in lines)
    until = ended + left * home.i[0] + (left + 1) * home.w[0]
    until = np.maximum(until, np.where(r < 0, states.first, states.first + home.i[r]) + rest[np.maximum(r, 0)])
    ahead = np.minimum(r + 1, last)
    on = tails[Line(home.back, 0, home.rank + last)][b] + home.i[-1]
    until = np.maximum(until, states.second + np.where(r < last, home.f[ahead] + own[ahead], on))
    if not problem.span:
        most = ended[:, None] - home.inward[0] + home.inward + left * home.i + (left + 1) * home.w
        until = np.maximum(until, np.where(np.arange(last + 1) <= r[:, None], most, UNKNOWN).max(axis=1))
    return int(until.min())
