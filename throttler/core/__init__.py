"""The throttler's decisions: synchronous, deterministic, `now` is an argument."""
