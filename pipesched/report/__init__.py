"""Holds the verdict on a schedule as a value: text and JSON."""
