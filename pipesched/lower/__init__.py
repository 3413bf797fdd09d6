"""From the order of compute to the programs that run: sends, receives, reductions and the step.

communicate     Schedule + Timeline -> Program
torch_actions   Program -> Program with torch's sharding and waits, without what only our runtime knows
"""
