"""The laboratory: benchmarks and the reproduction of the papers. Nothing of the product imports it."""
