"""Finds the schedule with the least bubble under a memory cap, and proves it optimal."""
