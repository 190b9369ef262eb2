"""Throttling, as a library: who is refused under overload, and which calls are protected."""
