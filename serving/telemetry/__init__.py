"""OpenTelemetry, in one place: one trace per interaction, metrics, and where both go."""
