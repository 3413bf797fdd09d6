"""Decisions in addition to the order: an optimum over alternatives, each an optimization with its own terms.

    alternatives ──> quick bounds ──> sorted ──> orders of the first ──> best ──> every other: no order is better
         │               those at or above the best are excluded                       │
         └── the checker lists them anew, from the numbers in the answer ──────────────┘ bound, ranks, or a proof

`partition` divides layers among stages, `search` finds the best alternative, and `over_all`, the checker's part, shows
that no alternative is better.
"""
