"""Proofs for every p, every m and every cost: the prover converts a file to integer relations, and the file's
properties to subset tests.

    .ps tree ──statements──> instances, placement ──counters──> who runs what ──> order, data flow
                                                                                     │
       fitted to small sizes, then proved      ──> clock, start times, peaks ──> is this a subset of that?

isl decides each subset test for all sizes at once; a property that it cannot decide is reported as not settled.
"""
