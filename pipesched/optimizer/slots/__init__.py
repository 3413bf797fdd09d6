"""Orders of slots, which are pairs F+B or single operations: the optimizer decides which F runs with which B.

`orders` reads and writes such orders, `search` looks for shorter orders until there are no more, `answer` has the
checker judge it (`proof.slots`, `judged`).
"""
