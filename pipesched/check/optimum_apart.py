"""For every number of microbatches, from a proof of one: leave some out.

    M(m0 + jK) >= M(m0) + j a        a: the least time from the start of F(0, i) to that of F(0, i + K)

Of a schedule of m0 + jK microbatches of one route leave out the first jK, as they start on the first stage. What is
left is a schedule of m0: nothing of it waited for what is left out, and no rank holds more. Nothing of it starts before
F(0, jK), and that starts ja after F(0, 0). A longest path from the one to the other is at most a.

So where nothing at m0 is below a value, nothing at m0 + jK is below that and j times the path.
"""

from __future__ import annotations

from collections import Counter

from pipesched.check.optimum_paths import Facts, between


def apart(facts: Facts, step: int) -> int:
    """How long `step` microbatches are apart at least, in ticks, as far as paths show it; facts: of more than these.

    0 where a microbatch may hold less than nothing of a stage, so that without it there is more.
    """
    held = Counter[int]()
    for line in facts.rank:  # F, then I or B, then W of each stage
        held[line.stage] += facts.gains[line]
        if held[line.stage] < 0:
            return 0
    first = next(iter(facts.rank))
    return between(facts, first, 0, step) if facts.length[first] > step else 0
