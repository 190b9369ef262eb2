"""The operators' page: one sees who is served how much, beside whom, while it happens."""
