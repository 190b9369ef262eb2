"""The cost of the operators' page."""
