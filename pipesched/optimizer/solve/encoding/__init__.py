"""The question "is there a schedule with objective at most C?" as clauses, built as arrays.

clauses: literals and counters ──> cnf: chains, machines, a part that repeats;  memory_counters: memory
"""
