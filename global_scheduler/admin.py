"""The operators' service of the scheduler."""

from collections.abc import Sequence
from itertools import islice
from typing import Any

from fairlead.v1 import scheduler_pb2, scheduler_pb2_grpc
from global_scheduler.core.client_service_table import NOTHING, ClientTotals
from global_scheduler.service import SchedulerService


class AdminService(scheduler_pb2_grpc.AdminServicer):
    """The gRPC service fairlead.v1.Admin, for holders of the admin secret."""

    def __init__(self, scheduler: SchedulerService, policy: str) -> None:
        self._scheduler = scheduler
        self._policy = policy

    async def Status(self, request: scheduler_pb2.StatusRequest, context: Any) -> scheduler_pb2.StatusResponse:
        """Return the cluster's state with each worker's load, and its service per client."""
        return scheduler_pb2.StatusResponse(
            cluster=self._scheduler.status(),
            services=self._scheduler.services(),
            policy=self._policy,
            clients=len(self._scheduler.client_services),
            placed_by_others=self._scheduler.placed_by_others,
        )

    async def ListClients(
        self, request: scheduler_pb2.ListClientsRequest, context: Any
    ) -> scheduler_pb2.ListClientsResponse:
        """Return each client's sums over the live workers, and what it has waiting at each of them."""
        cluster = self._scheduler.status()
        workers = [member.worker for member in cluster.members]
        totals = self._scheduler.client_services.latest(request.most * max(1, len(workers)))
        return scheduler_pb2.ListClientsResponse(
            cluster=cluster,
            policy=self._policy,
            clients=[_total(client, totals[client], workers) for client in islice(totals, request.most)],
            remembered=len(self._scheduler.client_services),
        )

    async def DrainWorker(
        self, request: scheduler_pb2.DrainWorkerRequest, context: Any
    ) -> scheduler_pb2.DrainWorkerResponse:
        """Drain a worker: it gets no requests from now on, even before it has received the command."""
        self._scheduler.drain(request.worker)
        return scheduler_pb2.DrainWorkerResponse()

    async def FlushWorker(
        self, request: scheduler_pb2.FlushWorkerRequest, context: Any
    ) -> scheduler_pb2.FlushWorkerResponse:
        """Flush a worker's prefix cache; the index follows when the worker reports the evictions."""
        self._scheduler.flush(request.worker)
        return scheduler_pb2.FlushWorkerResponse()


def _total(client: str, totals: ClientTotals, workers: Sequence[str]) -> scheduler_pb2.ClientTotal:
    services = [totals.services.get(worker, NOTHING) for worker in workers]
    return scheduler_pb2.ClientTotal(
        client=client,
        service=sum(service.service for service in services),
        weighted_service=sum(service.weighted for service in services),
        running=sum(service.running for service in services),
        waiting=[service.waiting for service in services] if totals.waiting else [],
    )
