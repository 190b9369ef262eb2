"""Leadership among several schedulers (leader_lease.py), or without rivals.

Terms are numbered by fencing epochs, each higher than all before it. If two schedulers act as leader for a moment,
gateways follow the higher epoch and ignore the other (docs/adr/0006).
"""

import asyncio
import socket
import uuid
from collections.abc import Callable
from typing import Protocol

from serving.config import ConfigError

# A dead leader's lease lasts this long; until it ends, gateways place requests by themselves, and so does Envoy.
LEASE_SECONDS = 1.5
STANDBY = 0  # the epoch of a scheduler that does not lead


class Leadership(Protocol):
    """The leadership of this scheduler; `epoch` is the current term's, or STANDBY."""

    epoch: int

    def observe_epoch(self, epoch: int) -> None:
        """Record an epoch that a gateway or another scheduler has seen."""

    async def run(self, changed: Callable[[], None]) -> None:
        """Keep `epoch` current until cancelled, and call `changed` after each change."""


class SoleLeadership:
    """Leadership of the only scheduler, which always leads. After a restart it continues the epoch of its gateways."""

    def __init__(self) -> None:
        self.epoch = 1

    def observe_epoch(self, epoch: int) -> None:
        """See Leadership."""
        self.epoch = max(self.epoch, epoch)

    async def run(self, changed: Callable[[], None]) -> None:
        """See Leadership."""
        await asyncio.Event().wait()


def configured_leadership(redis: str, password: str, authority: str, name: str) -> Leadership:
    """Return leadership of the group `name` by a lease in the Redis at the URL `redis`; sole leadership without one.

    Raises ConfigError.
    """
    if not redis:
        return SoleLeadership()
    from global_scheduler.leader_lease import LeaderLease
    from serving.redis_access import open_redis

    try:
        opened = open_redis(redis, password, authority)
    except ValueError as error:
        raise ConfigError(f"redis: {error}") from error
    return LeaderLease(opened, name, holder=f"{socket.gethostname()}-{uuid.uuid4().hex}", seconds=LEASE_SECONDS)
