"""The gateway: the public service that sends each API call to a worker and returns its output, despite failures."""
