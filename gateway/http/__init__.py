"""The HTTP front: OpenAI's API, answered by the same calls that gRPC callers make."""
