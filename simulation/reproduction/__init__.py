"""The papers' evaluations again: one item per figure or table, with the conclusion that the paper draws from it."""
