"""Benchmarks, which are run by hand, for example with `python -m tests.bench.scale`; they assert nothing."""
