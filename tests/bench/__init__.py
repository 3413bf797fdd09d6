"""Benchmarks, run by hand as `python -m tests.bench.scale`; they assert nothing."""
