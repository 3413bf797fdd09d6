"""From the order of compute to what runs: sends, receives, reductions and the step.

communicate   Schedule + Timeline -> Program
"""
