"""How far one scheduler goes. See __main__."""
