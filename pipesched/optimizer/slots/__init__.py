"""Orders of slots, which are pairs F+B or single operations: the optimizer decides which F and B form pairs.

`orders` converts models to orders, `starts` and `windows` find orders, and `answer` searches for the shortest order and
has the checker judge it (`proof.slots`, `judged`).
"""
