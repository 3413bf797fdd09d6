"""What schedules cost beside each other, and why.

why      one schedule: its idle time by reason, its critical path, and what order it is
table    many schedules at many sizes: times, memory, messages, parameters, a lower bound
differ   two orders: the operations that moved, and what that costs
"""
