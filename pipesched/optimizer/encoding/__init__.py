"""Is there a schedule with objective at most C? The question as clauses, built as arrays.

merge, relax ──> variables ──> cnf: chains, machines, periodic parts;  counters: memory ──> clauses
"""
