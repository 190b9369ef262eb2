"""Service per user over time while the scenario runs, as workers report it in the scheduler's status."""

import asyncio
import time
from dataclasses import dataclass, field

import grpc

from fairlead.v1 import scheduler_pb2, scheduler_pb2_grpc
from serving.rpc.channel import open_channel, secret_metadata

POLL_SECONDS = 0.25
LOST = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


@dataclass(frozen=True, slots=True)
class ServiceSample:
    """The service received since the start (cost units) and the backlogged users, `at` seconds into the run."""

    at: float
    service: dict[str, float]
    backlogged: dict[str, bool]  # has waiting requests on every worker (Definition 3.1 for a pool)


@dataclass(slots=True)
class Observation:
    """The samples of one run, and the proved bound of the pool in cost units, or 0.0 without one."""

    samples: list[ServiceSample] = field(default_factory=list)
    bound: float = 0.0

    @property
    def served(self) -> float:
        """The service that all users have received, in cost units."""
        return sum(self.samples[-1].service.values()) if self.samples else 0.0


async def observe(scheduler: str, secret: str, observation: Observation) -> None:
    """Append samples to `observation` until cancelled.

    A call that is lost on the way is no sample: on a busy machine a connection may miss a ping, and the next call opens
    another one.
    """
    metadata = secret_metadata(secret)
    began = time.monotonic()
    async with open_channel(scheduler) as channel:
        admin = scheduler_pb2_grpc.AdminStub(channel)
        while True:
            try:
                status = await admin.Status(scheduler_pb2.StatusRequest(), metadata=metadata, timeout=10)
            except grpc.aio.AioRpcError as error:
                if error.code() not in LOST:
                    raise
            else:
                observation.samples.append(_sample(status, time.monotonic() - began))
                observation.bound = sum(member.load.fairness_bound for member in status.cluster.members)
            await asyncio.sleep(POLL_SECONDS)


def _sample(status: scheduler_pb2.StatusResponse, at: float) -> ServiceSample:
    service: dict[str, float] = {}
    waits_on: dict[str, int] = {}
    for worker in status.services:
        for client in worker.clients:
            user = client.client.rpartition("/")[2]
            service[user] = service.get(user, 0.0) + client.service
            waits_on[user] = waits_on.get(user, 0) + (client.waiting > 0)
    workers = len(status.cluster.members)
    return ServiceSample(at, service, {user: count == workers > 0 for user, count in waits_on.items()})
