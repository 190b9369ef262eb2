"""Simulator: the services' cores under virtual time. Equal seeds give runs that are equal byte for byte."""
