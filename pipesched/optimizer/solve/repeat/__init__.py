"""Schedules for every number of microbatches: the search for a `seam`."""
