"""Lowering from the order of compute to programs: sends, receives, reductions and the step.

communicate     Schedule + Timeline -> Program
torch_actions   Program -> Program with torch's sharding and waits, without the instructions of our runtime
"""
