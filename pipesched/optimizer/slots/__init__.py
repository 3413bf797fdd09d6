"""Orders of slots, which are pairs F+B or single operations: the optimizer decides which F runs with which B.

`orders` reads and writes such orders, `search` asks for a shorter one until there is none, `answer` has the checker
judge it (`proof.slots`, `judged`).
"""
