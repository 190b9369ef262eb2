"""gRPC as both ends use it: channels and statuses."""
