"""gRPC channels and statuses, for the SDK and for services."""
