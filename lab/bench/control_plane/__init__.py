"""The cost of a call between the application and the worker. See __main__."""
