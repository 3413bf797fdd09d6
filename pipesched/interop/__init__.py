"""Schedules of other software, read and written: frameworks, trainers, recorded runs, other targets."""
