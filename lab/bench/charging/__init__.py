"""Measurements of when DLPM charges for output."""
