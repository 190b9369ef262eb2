"""The cores under virtual time: one seed, one run, the same bytes every time."""
