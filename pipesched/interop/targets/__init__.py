"""Schedules in the formats of trainers."""
