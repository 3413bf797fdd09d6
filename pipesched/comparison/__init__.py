"""What schedules cost beside each other, and why.

run, sizes                   a file with its verdict and times; which sizes go to which file
why, known                   one schedule: its idle time by reason, its critical path, the published order it is like
compare, rows                many schedules at many sizes: times, memory, messages, parameters, a lower bound
differ, listing              two orders: the operations that moved, and what that costs
*_text, *_json, tables       the same as people and programs read it
"""
