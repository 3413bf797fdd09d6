"""Reads and writes the schedules of other software: frameworks, trainers, recorded runs, other targets."""
