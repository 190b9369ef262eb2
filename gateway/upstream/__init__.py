"""The cluster behind the gateway: its members, the global scheduler and the workers."""
