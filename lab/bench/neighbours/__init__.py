"""The neighbours' test: a quiet user beside one neighbour at a time, on real processes; see `__main__`."""
