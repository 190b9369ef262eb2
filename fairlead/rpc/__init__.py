"""gRPC as every service uses it: servers, channels and statuses."""
