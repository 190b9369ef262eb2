"""The cluster behind the gateway: workers that tokenize prompts, and the placement of requests on workers."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from weakref import WeakValueDictionary

from fairlead.errors import Internal
from fairlead.v1 import scheduler_pb2, worker_pb2
from gateway.core.least_loaded import least_loaded, no_worker
from gateway.core.stall_detector import BEAT_SECONDS, StallDetector
from gateway.upstream.members import Members
from gateway.upstream.placements import PlacementReason
from gateway.upstream.schedulers import SchedulerLinks, SchedulerUnavailable
from gateway.upstream.workers import WorkerLink, WorkerLinks
from serving.rpc.mutual_tls import MutualTls

log = logging.getLogger(__name__)
LONG_PROMPT = 16 * 1024  # bytes; shorter ones are tokenized within milliseconds


class Cluster:
    """The links to schedulers and workers. `changed` is called after each change of members or overload."""

    def __init__(
        self,
        schedulers: Sequence[str],
        secret: str,
        changed: Callable[[], None],
        mutual_tls: MutualTls | None = None,
    ) -> None:
        self.members = Members()
        self.placements = dict.fromkeys(PlacementReason, 0)  # attempts to place a request since the start
        self._workers = WorkerLinks(secret, self._has_stalled, mutual_tls)
        self._changed = changed
        self._stall = StallDetector(time.monotonic())
        self._overloaded: list[str] = []
        # By client; an entry exists while one of the client's calls holds the lock or waits for it.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._schedulers = SchedulerLinks(
            schedulers, secret, self.members, self._workers.connected, self._members_changed, mutual_tls
        )

    async def run(self) -> None:
        """Run the links to the schedulers and the stall detector until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._schedulers.run())
            tasks.create_task(self._beat())

    async def _beat(self) -> None:
        while True:
            self._stall.beat(time.monotonic())
            await asyncio.sleep(BEAT_SECONDS)

    def _has_stalled(self) -> bool:
        return self._stall.explains(time.monotonic())

    async def close(self) -> None:
        """Close the links to workers."""
        await self._workers.close()

    async def encode(self, request: worker_pb2.EncodeRequest, deadline: float | None) -> worker_pb2.EncodeResponse:
        """Tokenize at any worker of the model; a client's long prompts one after the other, to bound workers' memory.

        Raise InvalidRequest or DeadlineExceeded, or Unavailable if there is no worker.
        """
        async with self._turn(request.client, request.ByteSize()):
            return await self._workers.encode(self.members.serving(request.model), request, deadline)

    async def decode(self, request: worker_pb2.DecodeRequest) -> worker_pb2.DecodeResponse:
        """Return the text of tokens from any worker of the model; order and errors are those of `encode`."""
        async with self._turn(request.client, request.ByteSize()):
            return await self._workers.decode(self.members.serving(request.model), request)

    def _turn(self, client: str, size: int) -> AbstractAsyncContextManager[None]:
        return self._turns.setdefault(client, asyncio.Lock()) if size > LONG_PROMPT else nullcontext()

    def link(self, placed: scheduler_pb2.DispatchReply) -> WorkerLink:
        return self._workers.link(placed.address, placed.instance)

    async def place(self, request: scheduler_pb2.DispatchRequest) -> scheduler_pb2.DispatchReply:
        """Return the reply of the leading scheduler, which chooses a worker; that of this gateway names no scheduler.

        Without a leader, choose the least loaded of the last known members. If the leader has no worker for the model,
        choose the least loaded of the members that have not attached to it yet. Raise Unavailable if no worker can take
        the request. Raise Internal if the scheduler reports the request as malformed: a choice by the gateway would
        hide the defect, and fairness across workers would not hold for such requests.
        """
        try:
            reply = await self._schedulers.select(request)
        except SchedulerUnavailable as away:
            return self._least_loaded(request, self.members.serving(request.model), away.reason)
        if reply.worker:
            self.placements[PlacementReason.SCHEDULER] += 1
            return reply
        match reply.unplaced:
            case scheduler_pb2.UNPLACED_STANDBY:
                return self._least_loaded(request, self.members.serving(request.model), PlacementReason.NO_LEADER)
            case scheduler_pb2.UNPLACED_MALFORMED:
                self.placements[PlacementReason.MALFORMED] += 1
                log.error("the scheduler calls a request malformed", extra=_named(request, reply))
                raise Internal(f"the scheduler cannot read the gateway's request: {reply.problem}")
            case _:
                inherited = self.members.inherited_serving(request.model)
                return self._least_loaded(request, inherited, PlacementReason.SETTLING)

    def withdraw(self, request_id: str, attempt: int) -> None:
        """Return a placement to the scheduler: the attempt never started, and its worker will not report it."""
        self._schedulers.withdraw(request_id, attempt)

    def _least_loaded(
        self, request: scheduler_pb2.DispatchRequest, members: Sequence[scheduler_pb2.Member], reason: PlacementReason
    ) -> scheduler_pb2.DispatchReply:
        member = least_loaded(members, request.excluded, self._workers.load)
        if member is None:
            self.placements[PlacementReason.NO_WORKER] += 1
            raise no_worker(request.model, self.members.serving(request.model), request.excluded)
        self.placements[reason] += 1
        return scheduler_pb2.DispatchReply(
            worker=member.worker, instance=member.instance, address=member.address, selected_at=time.time_ns()
        )

    def _members_changed(self) -> None:
        self._workers.keep(self.members.all())
        if self._overloaded != self.members.overloaded_models():
            self._overloaded = self.members.overloaded_models()
            log.info("overload changed", extra={"models": self._overloaded})
        self._changed()


def _named(request: scheduler_pb2.DispatchRequest, reply: scheduler_pb2.DispatchReply) -> dict[str, object]:
    return {"request_id": request.request_id, "attempt": request.attempt, "error": reply.problem}
