"""Engines decide one question: is there a schedule with objective at most C?

    decide     question -> windows -> clauses ─┬─ sat        CaDiCaL, Glucose
                                               ├─ z3_engine  Z3's SAT core
                              intervals ───────┴─ cp_sat     OR-Tools
    checked    a model is believed when its starts keep every rule of the problem
    proof      a refutation, written for others to check
    pool       two processes (`worker`) that decide while the search goes on

An engine that does not know says unknown, and why. Unknown is never unsat.
"""

from pipesched.optimizer.engines.decide import ENGINES, decide

__all__ = ["ENGINES", "decide"]
