"""A lower bound on the makespan of many microbatches under small caps, by a formula.

One stage per rank; F, I and W take one tick, messages no time; W frees an activation at its end; rank 0 holds at most k
>= 2 activations. With m - 1 = qk + e, 0 <= e < k:

    (n + 1) (2p + 2) + 3x - 2      for every n from 1 to q with x = m - 1 - nk >= 1
    q (2p + 2) + p + k             if e = 0 and q >= 1

Memory:   F(0,i+k) >= end of W(0,i) >= I(0,i) + 2.
Meeting:  a < b < a + k; r is the last stage that runs F(b) before I(a); tau(a,b) = max(F(r,b), I(r+1,a)). Rank r runs
          F(b) before I(a), rank r + 1 runs I(a) before F(b), and each waits for the later one: F(r+1,b) and I(r,a) are
          both >= tau + 1.
Step:     the next meeting is (b, a+k), at r'. To I(r'+1,b) it takes at least 2p - 2 - r - r', and to F(r',a+k), by way
          of I(0,a) and W(0,a), at least r + r' + 3. These add up to 2p + 1, which is odd, so one of them is at least
          p + 1: a round trip of k microbatches takes 2p + 2, where no rank sees more than 2p + 1.
Ends:     tau(0,1) >= max(1 + r, 2p - 2 - r) >= p, and after tau(m-2,m-1) come at least p + 3. With n trips and x = 1:
          p + n (2p + 2) + p + 3. If x > 1, the other x - 1 microbatches pass rank 0 at one meeting, three ticks each:
          that step takes at least 3 (x - 1) longer. For e = 0 the walk ends with (m-1-k, m-1) at t: >= t + p + 1 + k.

Ranks r .. p - 1 run a schedule of a shorter pipeline that starts at r or later, so the cap of each of its ranks counts
too.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipesched.model.ops import Op
from pipesched.optimizer.proof.problem import Line, Problem


def meetings(problem: Problem) -> tuple[int, str]:
    """Return the best of these bounds in ticks, and its terms in words, with numbers in operations; 0 if none
    applies.
    """
    unit, size = _unit(problem), max(problem.gains.values())
    made = [
        (unit * (rank + value), f"rank {rank} holds {cap // size} at most, {why}")
        for rank, cap in enumerate(problem.cap)
        if unit and cap is not None
        for value, why in _terms(len(problem.cap) - rank, cap // size, problem.length[Line(Op.F, 0, 0)], rank)
    ]
    return max(made, key=lambda one: one[0], default=(0, ""))


def _unit(problem: Problem) -> int:
    """Return the duration of every operation if the problem is of this kind; otherwise 0."""
    forward = [(line.route, line.stage, rank) for line, rank in problem.rank.items() if line.op == Op.F]
    linear = forward == [(0, s, s) for s in range(len(problem.cap))]
    held, units = max(problem.gains.values()), set(problem.work.values())
    gains = {(line.op, gain) for line, gain in problem.gains.items()}
    late = any(message for _, _, _, message in problem.arcs)
    alike = linear and not late and len(units) == 1 and held and gains == {(Op.F, held), (Op.I, 0), (Op.W, -held)}
    return max(units) if alike and not problem.span else 0


def _terms(p: int, k: int, m: int, begins: int) -> Iterator[tuple[int, str]]:
    """Yield bounds for p ranks whose first holds k; the first form is linear in n, so only its ends are tried."""
    if p < 2 or k < 2:
        return
    (q, e), trip = divmod(m - 1, k), 2 * p + 2
    rests = [(n, m - 1 - n * k) for n in {1, q - 1, q} if 1 <= n <= q]
    made = [((n + 1) * trip + 3 * x - 2, f"{n + 1} x {trip} + 3 x {x} - 2") for n, x in rests if x >= 1]
    made += [(q * trip + p + k, f"{q} x {trip} + {p} + {k}")] * (q >= 1 and e == 0)
    for value, terms in made:
        total = f"{f'{begins} + ' if begins else ''}{terms} = {begins + value}"
        yield value, f"and microbatches that meet wait for each other: {total}"
