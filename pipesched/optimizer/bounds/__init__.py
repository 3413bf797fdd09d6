"""No schedule is better than this: longest paths, the work of one rank, warm-up and cool-down under a cap.

windows, memory_links   heads and tails               machine, warmup    bounds that a person can add up
lattice, tighten        all orders of one rank        lower              the best of them
least_cap               whether there is a schedule at all
"""
