"""Repairs orders that hang or pair messages wrongly: `emit --mend`."""
