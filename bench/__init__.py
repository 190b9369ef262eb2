"""Benchmarks: `python -m bench.NAME`. Each one compares alternatives in the same run."""
