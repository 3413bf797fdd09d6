"""Reads and writes the schedules of others: frameworks, trainers, recorded runs, other targets."""
