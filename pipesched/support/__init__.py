"""Limits, foreign text, files and processes: the basis of all other modules."""
