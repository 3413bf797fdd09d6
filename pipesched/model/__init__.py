"""The nouns: immutable, exact, without judgement.

Op          the kinds of instruction, and all that varies by kind: one table
Placement   who holds which stage
Schedule    the order of compute on every rank: the picture in the paper
Program     per-rank instruction lists with sends and receives: what runs
Costs       how long an operation takes
Release     when an activation is freed
"""
