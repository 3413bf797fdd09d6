"""An optimum is what can be derived of it anew. What proves is these files, which import nothing but `model`:

    problem     placement, costs, release, caps and m as whole numbers; how early an operation can start
    work        no less:  what a rank does between a head and a tail
    meetings    no less:  microbatches that meet wait for each other
    ranks       none by C:  no order of a rank is over by then, given when its inputs can be there     `windows`
    clauses     what holds of every schedule that is over by C
    lrat        clauses that contradict each other, followed step by step
    every       the same for every m: a part of the schedule that repeats, and a bound that grows with it

What reads an answer and says so is `judge`, `case`, `entries`, `answer`.
"""
