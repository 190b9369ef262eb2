"""What the configurations of scheduler and endpoint picker have in common: leadership, and DoubleQ's quantum."""

import socket
import uuid

from global_scheduler.leadership import Leadership, SoleLeadership
from serving.config import require

# A dead leader's lease lasts this long; until it ends, gateways place requests by themselves, and so does Envoy.
LEASE_SECONDS = 1.5
QUANTUM_TOKENS = 4096


def configured_quantum(policy: str, given: int | None) -> int:
    """Return Q^w in cost units; raises ConfigError when it is given for a policy that has none."""
    require(
        given is None or policy == "doubleq",
        f"quantum_tokens: only the policy doubleq has a quantum, got {given} with the policy {policy}",
    )
    return QUANTUM_TOKENS if given is None else given


def configured_leadership(redis: str, name: str) -> Leadership:
    """Return leadership of the group `name` by a lease in the Redis at the URL `redis`; sole leadership without one.

    Raises ConfigError.
    """
    if not redis:
        return SoleLeadership()
    # Redis' client is a third of the work of a start, so only a process with a Redis imports it.
    from global_scheduler.leader_lease import LeaderLease
    from serving.redis_access import open_redis

    opened = open_redis(redis)
    return LeaderLease(opened, name, holder=f"{socket.gethostname()}-{uuid.uuid4().hex}", seconds=LEASE_SECONDS)
