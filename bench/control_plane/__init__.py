"""What a call costs between the application and the worker. See __main__."""
