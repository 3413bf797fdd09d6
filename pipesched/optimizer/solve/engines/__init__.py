"""Engines decide one question: is there a schedule with objective at most C?

    decide     question -> time windows -> clauses ─┬─ sat_engines    CaDiCaL, Z3's SAT core
                                   intervals ───────┴─ cp_sat         OR-Tools
    worker_pool    two processes that decide while the search continues

A model is believed when its starts keep every rule of the problem; a refutation can be written as a proof. An engine
that does not know says unknown, and why. Unknown is never unsat.
"""
