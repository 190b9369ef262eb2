"""Overload as the schedulers report it: which pools have more work than they can do."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence

import grpc

from fairlead.rpc.cancellation import reraise_cancellation
from fairlead.v1 import scheduler_pb2, scheduler_pb2_grpc
from serving.rpc.channel import open_channel, secret_metadata
from serving.rpc.mutual_tls import MutualTls
from serving.watched_cluster import WatchedCluster

log = logging.getLogger(__name__)
RECONNECT_SECONDS = 0.2
# While a pool is overloaded, the leading scheduler reports four times a second.
FRESH_SECONDS = 1.0


class SchedulerOverload:
    """The overload that the leading scheduler reports, which is the one with the highest epoch.

    Without a report in the last FRESH_SECONDS no pool counts as overloaded, as in a gateway.
    """

    def __init__(self) -> None:
        self._epoch = 0
        self._overloaded: Mapping[str, bool] = {}
        self._reported = float("-inf")

    def __call__(self, model: str) -> bool:
        """Return whether the pool of `model` is overloaded; with an empty name, whether any pool is."""
        if time.monotonic() - self._reported > FRESH_SECONDS:
            return False
        return self._overloaded.get(model, False) if model else any(self._overloaded.values())

    def apply(self, report: WatchedCluster) -> None:
        """Apply a scheduler's report; those of standbys and of deposed leaders change nothing."""
        if report.epoch == 0 or report.epoch < self._epoch:
            return
        if report.overloaded != self._overloaded:
            models = [model for model, overloaded in report.overloaded.items() if overloaded]
            log.info("overload changed", extra={"models": models})
        self._epoch, self._overloaded, self._reported = report.epoch, report.overloaded, time.monotonic()

    async def run(self, addresses: Sequence[str], secret: str, mutual_tls: MutualTls | None) -> None:
        """Watch all schedulers until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for address in addresses:
                tasks.create_task(self._follow(address, secret, mutual_tls))

    async def _follow(self, address: str, secret: str, mutual_tls: MutualTls | None) -> None:
        async with open_channel(address, mutual_tls) as channel:
            while True:
                try:
                    await channel.channel_ready()
                    await self._watch(scheduler_pb2_grpc.SchedulerStub(channel), secret)
                except grpc.aio.AioRpcError as error:
                    reraise_cancellation()
                    log.warning("scheduler is away", extra={"scheduler": address, "error": error.details()})
                await asyncio.sleep(RECONNECT_SECONDS)

    async def _watch(self, stub: scheduler_pb2_grpc.SchedulerStub, secret: str) -> None:
        request = scheduler_pb2.WatchRequest(epoch=self._epoch, takes_changes=True)
        cluster = WatchedCluster()
        async for state in stub.Watch(request, metadata=secret_metadata(secret)):
            cluster.apply(state)
            self.apply(cluster)


def always(model: str) -> bool:
    """Return True: without a scheduler the limits hold at all times."""
    return True
