"""Find the schedule with the least bubble under a memory cap, and prove that it is optimal."""
