"""The operators' page: a live view of the service that each client receives, beside the others."""
