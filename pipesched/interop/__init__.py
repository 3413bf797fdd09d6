"""Reads schedules from frameworks, trainers and recorded runs, and writes schedules for other software."""
