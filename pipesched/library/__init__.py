"""Finds the schedules, models and data that are installed with the package, and files by name."""
