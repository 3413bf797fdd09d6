"""Compares a recorded run with its schedule."""
