"""Explanations of idle time, and comparisons of schedules and orders."""
