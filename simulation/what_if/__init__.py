"""Comparison of configurations on an operator's workload: demand, waiting times and the best configuration."""
