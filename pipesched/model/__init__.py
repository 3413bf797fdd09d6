"""The data types of the compiler: immutable, exact, without checks.

Op          the kinds of instruction, with all their properties, in one table
Placement   the rank of every stage
Schedule    the order of compute on every rank: the picture in the paper
Program     per-rank instruction lists with sends and receives: what runs
Costs       how long an operation takes
Release     when an activation is freed
"""
