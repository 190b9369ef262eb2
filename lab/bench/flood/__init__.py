"""The flood test: one workload against several ways to share one engine between users; see `__main__`."""
