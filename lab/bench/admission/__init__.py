"""The cost of a throttling decision, and the exactness of limits that gateways share."""
