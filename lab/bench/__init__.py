"""Benchmarks: `python -m lab.bench.NAME`. Each one compares alternatives in the same run."""
