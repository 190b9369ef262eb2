"""Fairlead's shared library: what applications import and what the services have in common."""
