"""Decides only the order of a schedule's own operations, which can be of any kind that `verify` supports.

`run` computes the times of an order, `search` improves the order, and `answer` has the checker judge the best order
(`proof.own_order`).
"""
