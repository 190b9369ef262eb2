"""What operators may ask of the scheduler."""

from typing import Any

from fairlead.v1 import scheduler_pb2, scheduler_pb2_grpc
from global_scheduler.service import SchedulerService


class AdminService(scheduler_pb2_grpc.AdminServicer):
    """fairlead.v1.Admin."""

    def __init__(self, scheduler: SchedulerService, policy: str) -> None:
        self._scheduler = scheduler
        self._policy = policy

    async def Status(self, request: scheduler_pb2.StatusRequest, context: Any) -> scheduler_pb2.StatusResponse:
        """The cluster as watchers see it, with each worker's service per client."""
        return scheduler_pb2.StatusResponse(
            cluster=self._scheduler.state(),
            services=self._scheduler.services(),
            policy=self._policy,
            clients=len(self._scheduler.client_services),
            placed_by_others=self._scheduler.placed_by_others,
        )

    async def DrainWorker(
        self, request: scheduler_pb2.DrainWorkerRequest, context: Any
    ) -> scheduler_pb2.DrainWorkerResponse:
        """No requests for it from now on, whether or not it has heard of that yet."""
        self._scheduler.drain(request.worker)
        return scheduler_pb2.DrainWorkerResponse()

    async def FlushWorker(
        self, request: scheduler_pb2.FlushWorkerRequest, context: Any
    ) -> scheduler_pb2.FlushWorkerResponse:
        """Blocks that it evicts leave the index when it says so."""
        self._scheduler.flush(request.worker)
        return scheduler_pb2.FlushWorkerResponse()
