"""Benchmarks: `python -m bench.NAME`; each compares side by side in one run."""
