"""Throttling, as a library of the gateway: who is refused under overload, and which calls are protected."""
