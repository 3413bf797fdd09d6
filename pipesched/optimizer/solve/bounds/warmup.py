"""A lower bound by warm-up and cool-down, from the work of a rank that fits before one time and after another.

Early in a step, few inputs of a rank have arrived, and late in the step, little work is left; memory limits how far F
can run ahead and W can be delayed. So, for times t from the beginning and u from the end,

    before(t)   the most work that can be done before t                heads, and held memory just before t <= cap
    after(u)    the most work that can be done in the last u           tails, and held memory just after C - u <= cap
    C >= t + (work - before(t) - after(u)) + u                         the rest is done in between, one at a time;
                                                                       without a rest, t and u can overlap

With a V placement on p ranks, unit costs and a cap of k chunks, rank p - 1 takes k chunks, then waits for the first
gradient at 3p - 1; in the 3p ticks after its last F it has only I and W of k chunks left:

    C >= 6m + max(0, 3p - 1 - k) + max(0, 3p - 2k)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipesched.model.columns import Ints
from pipesched.model.ops import Op
from pipesched.optimizer.solve.problem import Problem

_TIMES = 500  # most heads or tails of a rank that are tried: warm-up and cool-down are over by then
_FEW = 48  # up to this number, all times are tried


@dataclass(frozen=True)
class Ends:
    """The best pair of times, and the work before and after them; value = head + work - before - after + tail."""

    head: int
    before: int
    work: int
    after: int
    tail: int

    @property
    def value(self) -> int:
        return self.head + self.work - self.before - self.after + self.tail


@dataclass(frozen=True, eq=False)
class Chunk:
    """F, I and W (or F and B) of a stage on its rank: the duration, heads or tails, and memory change of each kind."""

    work: tuple[int, ...]
    times: tuple[Ints, ...]
    change: tuple[int, ...]


def ends(problem: Problem, rank: int, head: Ints, tail: Ints) -> Ends:
    """Return the warm-up and cool-down times of a rank that yield the largest lower bound.

    head, tail: int64, shape (operations,).
    """
    work = int(problem.work[rank])
    first, before = limits(problem, rank, head, back=False)
    last, after = limits(problem, rank, tail, back=True)
    apart = before[:, None] + after[None, :] < work
    value = np.where(apart, (first - before)[:, None] + (last - after)[None, :], -(2**62))
    i, j = np.unravel_index(int(np.argmax(value)), value.shape)
    return Ends(int(first[i]), int(before[i]), work, int(after[j]), int(last[j]))


def chunks(problem: Problem, rank: int, time: Ints, *, back: bool) -> Iterator[Chunk]:
    """Yield the chunks of a rank, with kinds in chain order. back: times are tails, reversed so that they rise."""
    held = problem.on[rank]
    for f in held:
        if problem.op[f] == Op.F:
            same = [q for q in held if problem.stage[q] == problem.stage[f] and problem.route[q] == problem.route[f]]
            same.sort(key=lambda q: (Op.F, Op.I, Op.B, Op.W).index(Op(int(problem.op[q]))))
            times = [time[problem.first[q] : problem.first[q + 1]] for q in same]
            yield Chunk(
                tuple(int(problem.duration[q]) for q in same),
                tuple(np.maximum.accumulate(t[::-1]) if back else np.maximum.accumulate(t) for t in times),
                tuple(int(problem.takes[q] - problem.frees[q]) for q in same),
            )


def limits(problem: Problem, rank: int, time: Ints, *, back: bool) -> tuple[Ints, Ints]:
    """Return the times at which the bound can be largest, and the work that fits before each; empty without stages.

    time: heads or, with `back`, tails; int64, shape (operations,). The work that fits grows with time. So between two
    evaluated times, time - work never exceeds the later time minus the earlier time's work, and only intervals that can
    improve the best value are divided.
    """
    stages, cap = list(chunks(problem, rank, time, back=back)), int(problem.cap[rank])
    if not stages:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    times = np.unique(np.concatenate([times for stage in stages for times in stage.times]))[:_TIMES].tolist()
    last = len(times) - 1
    known = {i: _fits(stages, cap, times[i], back=back) for i in (range(last + 1) if last < _FEW else (0, last))}
    best = max(times[i] - work for i, work in known.items())
    between = [(0, last)]
    while between:
        low, high = between.pop()
        middle = (low + high) // 2
        if middle not in known and times[high] - known[low] > best:
            known[middle] = _fits(stages, cap, times[middle], back=back)
            best = max(best, times[middle] - known[middle])
            between += [(low, middle), (middle, high)]
    return np.array([times[i] for i in sorted(known)]), np.array([known[i] for i in sorted(known)])


def _fits(chunks: list[Chunk], cap: int, t: int, *, back: bool) -> int:
    """Return the largest amount of work before t or, with `back`, within the last t."""
    held, work = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    for chunk in chunks:
        more, gain = (_backward if back else _forward)(chunk, t)
        total = (held[:, None] + more[None, :]).ravel()
        done = (work[:, None] + gain[None, :]).ravel()
        held, work = _pareto(total, done)
    within = held <= cap
    return int(work[within].max()) if within.any() else 0


def _pareto(held: Ints, work: Ints) -> tuple[Ints, Ints]:
    """Return the Pareto front of (held, work): less memory, more work."""
    order = np.lexsort((-work, held))
    held, work = held[order], work[order]
    better = np.concatenate([[True], work[1:] > np.maximum.accumulate(work)[:-1]])
    return held[better], work[better]


def _begun(chunk: Chunk, t: int) -> list[Ints]:
    """Return, for each kind, the most work that the first n operations can do by time t, for each possible n."""
    made = []
    for work, times in zip(chunk.work, chunk.times, strict=True):
        n = int(np.searchsorted(times, t))
        done = work * np.arange(n + 1)
        if n:
            done[1:] += np.minimum(0, t - times[:n] - work)
        made.append(np.maximum.accumulate(done))
    return made


def _over(chunk: Chunk, t: int, which: int) -> int:
    """Return the number of operations of a kind that can have ended by t - 1."""
    return int(np.searchsorted(chunk.times[which] + chunk.work[which], t - 1, side="right"))


def _forward(chunk: Chunk, t: int) -> tuple[Ints, Ints]:
    """Return (held just before t, work before t) for every number of F, with as many backwards as possible.

    An I that takes memory counts as ended only if its W has ended too.
    """
    done, change = _begun(chunk, t), chunk.change
    f = np.arange(len(done[0]))
    inner = np.minimum(f, _over(chunk, t, 1))
    last = np.minimum(inner, _over(chunk, t, -1))
    held = change[0] * f + change[1] * (inner if change[1] <= 0 else last)
    return held + (change[2] * last if len(done) > 2 else 0), _sum(done, [f] * len(done))


def _backward(chunk: Chunk, t: int) -> tuple[Ints, Ints]:
    """Return (held just after t from the end, work after that) for all numbers of remaining W and I, and thus of F."""
    done, change = _begun(chunk, t), chunk.change
    split = len(done) > 2
    w, i = _both(chunk, len(done[2]), len(done[1])) if split else (np.arange(len(done[1])),) * 2
    held = -change[0] * np.minimum(i, _over(chunk, t, 0)) - change[1] * i - (change[2] * w if split else 0)
    return held, _sum(done, [i, i, w] if split else [i, i])


def _sum(done: list[Ints], counts: list[Ints]) -> Ints:
    """Return the work of `counts` operations of each kind, or of all that can have begun if these are fewer."""
    parts = [work[np.minimum(n, len(work) - 1)] for work, n in zip(done, counts, strict=True)]
    return np.asarray(sum(parts))


def _both(chunk: Chunk, n: int, limit: int) -> tuple[Ints, Ints]:
    """Return the remaining (W, I), I <= W; for each W only the largest I, unless a larger I holds more memory."""
    w = np.arange(n)
    if chunk.change[1] >= 0:
        return w, np.minimum(w, limit - 1)
    w, i = (x.ravel() for x in np.meshgrid(w, np.arange(limit), indexing="ij"))
    return w[i <= w], i[i <= w]
