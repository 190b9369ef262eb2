"""Throttling, as a library: which calls are refused under overload, and which calls are protected."""
