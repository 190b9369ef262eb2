"""The scheduler on the wire: Dispatch, Attach, Watch and Admin.Status."""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from fairlead.blocks import unpack_digests
from fairlead.cost import weight_thousandths
from fairlead.errors import InvalidRequest
from fairlead.rpc.status import to_status
from fairlead.v1 import scheduler_pb2, scheduler_pb2_grpc
from global_scheduler.core.dispatcher import Dispatcher
from global_scheduler.core.fleet import Identity, Load, Member
from global_scheduler.core.policies import Request

# Load changes are coalesced to this period; members that come or go are told at once.
WATCH_SECONDS = 0.1
MAX_WEIGHT = 1e6


class Attachment:
    """What is known of one attached worker beyond the core's needs."""

    def __init__(self, hello: scheduler_pb2.Hello, member: Member) -> None:
        self.member = member
        self.services: dict[str, scheduler_pb2.ClientService] = {}
        self.view = scheduler_pb2.Member(
            worker=hello.worker, instance=hello.instance, address=hello.address, model=hello.model
        )

    def loaded(self, load: scheduler_pb2.Load) -> None:
        """Services are cumulative since the worker's start: the latest per client stands."""
        self.services.update((service.client, service) for service in load.services)
        self.view.load.CopyFrom(load)
        self.view.load.ClearField("services")


class SchedulerService(scheduler_pb2_grpc.SchedulerServicer):
    """fairlead.v1.Scheduler; the only place that reads clocks."""

    def __init__(self, dispatcher: Dispatcher, clock: Callable[[], float] = time.monotonic) -> None:
        self._dispatcher = dispatcher
        self._clock = clock
        self._attachments: dict[str, Attachment] = {}
        self._changed = asyncio.Event()

    async def Dispatch(
        self, batches: AsyncIterator[scheduler_pb2.DispatchBatch], context: Any
    ) -> AsyncIterator[scheduler_pb2.DispatchReplies]:
        """All replies for a message in one message."""
        try:
            async for batch in batches:
                # All are read before any is booked: a malformed one must not leave others booked without a reply.
                requests = [_request(message) for message in batch.requests]
                for withdrawal in batch.withdrawals:
                    self._dispatcher.withdrawn(withdrawal.request_id, withdrawal.attempt)
                if requests:
                    yield scheduler_pb2.DispatchReplies(replies=[self._reply(request) for request in requests])
        except InvalidRequest as error:
            await context.abort_with_status(to_status(error))

    async def Attach(
        self, reports: AsyncIterator[scheduler_pb2.WorkerReport], context: Any
    ) -> AsyncIterator[scheduler_pb2.WorkerCommand]:
        """A member for as long as the stream lasts."""
        attachment: Attachment | None = None
        try:
            async for report in reports:
                if attachment is None:
                    attachment = self._attach(report)
                    yield scheduler_pb2.WorkerCommand(attached=scheduler_pb2.Attached())
                else:
                    self._report(attachment, report)
        except InvalidRequest as error:
            await context.abort_with_status(to_status(error))
        finally:
            if attachment is not None:
                self._detach(attachment)

    async def Watch(
        self, _request: scheduler_pb2.WatchRequest, _context: Any
    ) -> AsyncIterator[scheduler_pb2.ClusterState]:
        """At once, and on every change."""
        last: scheduler_pb2.ClusterState | None = None
        while True:
            changed = self._changed
            state = self.state()
            if state != last:
                yield state
                last = state
            # The period also notices what only time changes: stale members, stale loads.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WATCH_SECONDS):
                    await changed.wait()

    def state(self) -> scheduler_pb2.ClusterState:
        """Live members by name, and their pools."""
        now = self._clock()
        live = [m.identity.worker for m in self._dispatcher.live(now)]
        pools = self._dispatcher.overloaded(now)
        return scheduler_pb2.ClusterState(
            members=[self._attachments[worker].view for worker in sorted(live)],
            pools=[scheduler_pb2.Pool(model=model, overloaded=overloaded) for model, overloaded in pools.items()],
        )

    def services(self) -> list[scheduler_pb2.WorkerService]:
        """Each attached worker's service per client, by name."""
        return [
            scheduler_pb2.WorkerService(worker=worker, clients=[s for _, s in sorted(attachment.services.items())])
            for worker, attachment in sorted(self._attachments.items())
        ]

    def _reply(self, request: Request) -> scheduler_pb2.DispatchReply:
        reply = scheduler_pb2.DispatchReply(request_id=request.request_id, attempt=request.attempt)
        assignment = self._dispatcher.dispatch(request, self._clock())
        if assignment is not None:
            reply.worker = assignment.member.identity.worker
            reply.address = assignment.member.identity.address
            reply.matched_tokens = assignment.matched_tokens
            reply.selected_at = time.time_ns()
        return reply

    def _attach(self, report: scheduler_pb2.WorkerReport) -> Attachment:
        if report.WhichOneof("kind") != "hello":
            raise InvalidRequest("the first message of a worker must be its hello", "hello")
        hello = report.hello
        cached = _digests(hello.cached, "hello.cached")
        member = self._dispatcher.attached(_identity(hello), cached, self._clock())
        attachment = self._attachments[hello.worker] = Attachment(hello, member)
        self._notify()
        return attachment

    def _report(self, attachment: Attachment, report: scheduler_pb2.WorkerReport) -> None:
        member, kind = attachment.member, report.WhichOneof("kind")
        if kind == "load":
            self._loaded(attachment, report.load)
        elif kind == "progress":
            progress = report.progress
            cached = _digests(progress.cached, "progress.cached")
            evicted = _digests(progress.evicted, "progress.evicted")
            for end in progress.ended:
                self._dispatcher.ended(member, end.request_id, end.attempt, end.started, end.output_tokens)
            self._dispatcher.progressed(member, cached, evicted)
        else:
            raise InvalidRequest(f"expected load or progress, got {kind}", "kind")

    def _loaded(self, attachment: Attachment, load: scheduler_pb2.Load) -> None:
        member = attachment.member
        was_draining = member.load.draining
        attachment.loaded(load)
        core = Load(load.running, load.waiting, load.kv_tokens_used, load.queue_seconds, load.draining)
        self._dispatcher.reported(member, core, self._clock())
        if was_draining != load.draining:
            self._notify()

    def _detach(self, attachment: Attachment) -> None:
        self._dispatcher.lost(attachment.member)
        worker = attachment.member.identity.worker
        if self._attachments.get(worker) is attachment:
            del self._attachments[worker]
            self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class AdminService(scheduler_pb2_grpc.AdminServicer):
    """fairlead.v1.Admin."""

    def __init__(self, scheduler: SchedulerService, policy: str) -> None:
        self._scheduler = scheduler
        self._policy = policy

    async def Status(self, _request: scheduler_pb2.StatusRequest, _context: Any) -> scheduler_pb2.StatusResponse:
        """The cluster as watchers see it, with each worker's service per client."""
        return scheduler_pb2.StatusResponse(
            cluster=self._scheduler.state(), services=self._scheduler.services(), policy=self._policy
        )


def _request(message: scheduler_pb2.DispatchRequest) -> Request:
    if not message.request_id:
        raise InvalidRequest("must not be empty", "requests.request_id")
    if not (math.isfinite(message.weight) and 0 < message.weight <= MAX_WEIGHT):
        raise InvalidRequest(f"must be above 0 and at most {MAX_WEIGHT:g}, got {message.weight}", "requests.weight")
    return Request(
        request_id=message.request_id,
        attempt=message.attempt,
        client=message.client,
        model=message.model,
        digests=_digests(message.digests, "requests.digests"),
        prompt_tokens=message.prompt_tokens,
        weight=weight_thousandths(message.weight),
        excluded=tuple(message.excluded),
    )


def _identity(hello: scheduler_pb2.Hello) -> Identity:
    model = hello.model
    identity = Identity(
        worker=hello.worker,
        instance=hello.instance,
        address=hello.address,
        model=model.name,
        block_tokens=model.block_tokens,
        kv_tokens=model.kv_tokens,
        max_running=model.max_running,
    )
    for name in Identity.__slots__:
        if not getattr(identity, name):
            raise InvalidRequest("must be given", f"hello.{name}")
    return identity


def _digests(packed: bytes, field: str) -> tuple[int, ...]:
    try:
        return unpack_digests(packed)
    except ValueError as error:
        raise InvalidRequest(str(error), field) from error
