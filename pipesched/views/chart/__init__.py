"""Draws a schedule in the terminal, and has the table of views to which extensions add rows."""
