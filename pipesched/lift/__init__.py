"""Turns an order back into a `.ps` program."""
