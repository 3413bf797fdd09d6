"""Finds the schedule with the least bubble under a memory cap, and proves that it is optimal."""
