"""Decisions beside the order: an optimum over alternatives, each of which is an optimization with terms of its own.

    alternatives ──> quick bounds ──> sorted ──> orders of the first ──> best ──> every other: no order is better
         │               those at or above the best are excluded                       │
         └── the checker lists them anew, from the numbers in the answer ──────────────┘ bound, ranks, or a proof

`alternatives` says what a decision offers, `partition` divides layers among stages, `search` finds the best, and
`over_all` is the checker's part: it derives for every alternative that nothing is better.
"""
