"""Lowers an order of compute to a program, with sends, receives, reductions and the step.

communicate     Schedule + Timeline -> Program
torch_actions   Program -> Program with torch's sharding and waits, without the instructions of our runtime
"""
