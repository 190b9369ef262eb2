"""The gateway's decisions: synchronous, deterministic, `now` is an argument."""
