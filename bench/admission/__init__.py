"""What it costs to decide whether a call is throttled, and how exact shared limits are."""
