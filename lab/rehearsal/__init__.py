"""Random systems with random faults, watched by an oracle of every promise: `python -m lab.rehearsal`."""
