"""The gateway: the public door; from an API call to a worker and back, whatever breaks in between."""
