"""Conversion of an order back to a `.ps` program."""
