"""Limits, foreign text and files: the basis of all other modules."""
