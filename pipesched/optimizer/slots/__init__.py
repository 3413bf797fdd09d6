"""Which F runs with which B, as a decision: orders of slots that are pairs F+B or single operations.

`orders` reads and writes such orders, `search` asks for a shorter one until there is none, `answer` has the checker
judge it (`proof.slots`, `judged`).
"""
