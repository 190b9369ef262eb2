"""What the services are built on: configuration, gRPC servers, telemetry, and the terms that their cores share."""
