"""Decisions that several services make: no clock, no randomness, no network."""
