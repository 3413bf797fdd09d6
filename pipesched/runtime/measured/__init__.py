"""Comparison of a measured run with its plan."""
