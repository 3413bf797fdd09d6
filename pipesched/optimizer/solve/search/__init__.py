"""The search from both sides until they meet: known orders and engines from above, bounds and refutations from
below.
"""
