"""Compares a measured run with its plan."""
