"""The order of a schedule's own operations, of any kind that `verify` knows: which operation a rank runs next.

`graph` holds the operations, `run` times an order of them, `search` improves it, `answer` has the checker judge the
best (`proof.own_order`).
"""
