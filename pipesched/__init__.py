"""A compiler and verifier for pipeline-parallel training schedules."""
