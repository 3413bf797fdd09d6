"""Draws a schedule in the terminal, and defines the table of views to which extensions add rows."""
