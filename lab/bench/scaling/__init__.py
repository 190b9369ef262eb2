"""The scaling limits of one scheduler. See __main__."""
