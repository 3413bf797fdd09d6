"""Schedules for every number of microbatches: the seam at which one is extended, and the search for it."""
