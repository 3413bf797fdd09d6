"""Schedules that a framework gives: its own code, executed in a process of its own."""
