"""A schedule as a picture in the terminal, and the table of views that extensions add to."""
