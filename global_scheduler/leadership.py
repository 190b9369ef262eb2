"""Leadership of a scheduler: shared by a lease (leader_lease.py), or without rivals.

Terms are numbered by fencing epochs, each higher than all before it. If two schedulers act as leader for a moment,
gateways follow the higher epoch and ignore the other (docs/adr/0006).
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

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
        self.epoch = max(self.epoch, epoch)

    async def run(self, changed: Callable[[], None]) -> None:
        await asyncio.Event().wait()
