"""Schedules for every number of microbatches: the seam, and the search for one."""
