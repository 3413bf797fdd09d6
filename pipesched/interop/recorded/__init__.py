"""Compare a recorded run with its schedule."""
