"""Comparison of a recorded run with its schedule."""
