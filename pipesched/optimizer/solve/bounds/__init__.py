"""Lower bounds on the objective: longest paths, the work of one rank, warm-up and cool-down under a cap.

longest_paths    heads and tails, memory included       lower_bound, warmup    bounds that a person can add up
lattice          all orders of each rank                least_cap              the caps that allow any schedule
"""
