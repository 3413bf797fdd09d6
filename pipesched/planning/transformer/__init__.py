"""A transformer, how it is trained, and what follows from both: parameters and bytes."""
