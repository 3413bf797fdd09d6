"""Engines, which decide whether there is a schedule with an objective of at most C.

    decide     question -> time windows -> clauses -> sat_engines    CaDiCaL, Z3's SAT core
    worker_pool    two processes that decide while the search continues

A model is accepted only if its starts satisfy every rule of the problem. An engine that cannot decide answers
`unknown`, with a reason. `unknown` never counts as `unsat`.
"""
