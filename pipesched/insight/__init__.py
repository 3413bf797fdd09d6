"""Explains idle time, and compares schedules and orders."""
