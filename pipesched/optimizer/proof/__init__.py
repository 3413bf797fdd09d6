"""The checker of optima, which derives every bound anew. These modules prove, independently of the solver:

    problem     placement, costs, release, caps and m as whole numbers; earliest starts of operations
    work        lower bound:  the work of a rank between a head and a tail
    meetings    lower bound:  microbatches that meet have to wait for each other
    ranks       refutation of C:  no order of a rank ends by C, given the earliest arrivals of its inputs     `windows`
    clauses     clauses that hold for every schedule that ends by C
    slots       the same for pairs and recomputation, with the terms in `slot_terms`
    lrat        a proof that the clauses contradict each other, followed step by step
    every       extension to every m: a part of the schedule that repeats, and a bound that grows with it

`judge`, `case`, `entries` and `answer` read an answer and derive its verdict.
"""
