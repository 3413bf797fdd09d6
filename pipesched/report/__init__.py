"""The verdict on a schedule as a value, with its text and JSON."""
