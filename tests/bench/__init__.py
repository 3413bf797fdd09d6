"""Benchmarks: run by hand, `python -m tests.bench.scale`; nothing here is asserted."""
