"""The papers' figures and tables, simulated. This package is not installed: run it in a checkout."""
