"""Converts an order back to a `.ps` program."""
