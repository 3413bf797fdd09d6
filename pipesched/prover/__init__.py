"""What holds for every p, every m and every cost: a file as relations of integers, and properties as subset tests.

    .ps tree ──statements──> instances, placement ──counters──> who runs what ──> order, data flow
                                                                                     │
       fitted to small sizes, then proved      ──> clock, start times, peaks ──> is this a subset of that?

isl decides the last question for all sizes at once; what it does not decide is said to be not settled.
"""
