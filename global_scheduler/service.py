"""The scheduler's gRPC service: Dispatch, Attach and Watch."""

import asyncio
import contextlib
import itertools
import logging
import time
import uuid
from collections.abc import AsyncIterator, Iterable
from typing import Any

from fairlead.errors import InvalidRequest, listed
from fairlead.v1 import scheduler_pb2, scheduler_pb2_grpc
from global_scheduler.attachment import WorkerAttachment
from global_scheduler.cluster_snapshot import ClusterSnapshot
from global_scheduler.core.client_service_table import ClientServiceTable
from global_scheduler.core.dispatcher import Dispatcher
from global_scheduler.core.fleet import Member
from global_scheduler.leadership import STANDBY, Leadership
from global_scheduler.wire import (
    accepted_from,
    identity_from,
    load_from,
    packed,
    request_from,
    runs_from,
    services_from,
    to_client_service,
)

log = logging.getLogger(__name__)
# Time alone changes overload, and makes members stale: both are looked at in this period. While a pool is overloaded,
# gateways are told each time, because they forget an overload that is not confirmed.
WATCH_SECONDS = 0.25
GATHER_SECONDS = 0.02  # members that attach or leave within this time are reported together
# Time after the end of a Dispatch stream by which its submissions have reached a worker, or never will.
ORPHAN_SECONDS = 2.0
# Clients per message to an operator; a longer message would delay dispatches while it is built.
MOST_SERVICES = 10_000
CLIPPED = 128  # characters of an unknown worker's name that an error repeats


class SchedulerService(scheduler_pb2_grpc.SchedulerServicer):
    """The gRPC service fairlead.v1.Scheduler; the only place in the scheduler that reads clocks.

    Workers attach to every scheduler, gateways watch every one and ask the one that leads: a standby knows all that the
    leader knows, but for what has reached no worker yet.
    """

    def __init__(self, dispatcher: Dispatcher, leadership: Leadership, cost: str) -> None:
        self._dispatcher = dispatcher
        self._leadership = leadership
        self._cost = cost
        self._other_costs: set[str] = set()  # cost functions that workers use and that were already warned of
        self.client_services = ClientServiceTable()
        self.placed_by_others = 0  # requests that gateways placed while this scheduler was the leader
        self.instance = uuid.uuid4().hex  # of this process, as traces and metrics name it
        self._attachments: dict[str, WorkerAttachment] = {}
        self._snapshot = ClusterSnapshot({}, {}, leadership.epoch)
        self._changed = asyncio.Event()  # something is to be published
        self._published = asyncio.Event()  # replaced at each publication
        self._sources = itertools.count(1)

    async def run(self) -> None:
        """Renew the leadership if this scheduler has it, and remove stale workers, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._leadership.run(self._changed.set))
            tasks.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            for member in self._dispatcher.expired(time.monotonic()):
                attachment = self._attachments[member.identity.worker]
                log.warning("worker stalls", extra={"worker": member.identity.worker})
                self._detach(attachment)
                attachment.close()
            self._changed.clear()
            self._publish()
            await asyncio.sleep(GATHER_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WATCH_SECONDS):
                    await self._changed.wait()

    def _publish(self) -> None:
        """Tell all watchers if anything changed, or if there is overload to be confirmed."""
        snapshot = self.snapshot()
        if snapshot != self._snapshot or snapshot.is_overloaded:
            self._snapshot, published, self._published = snapshot, self._published, asyncio.Event()
            published.set()

    async def Dispatch(
        self, request_iterator: AsyncIterator[scheduler_pb2.DispatchBatch], context: Any
    ) -> AsyncIterator[scheduler_pb2.DispatchReplies]:
        """Answer all requests of a message in one message."""
        source = next(self._sources)
        try:
            async for batch in request_iterator:
                replies = [self._reply(message, source) for message in batch.requests]
                # After the requests, because a gateway may withdraw a request of the same message.
                for withdrawal in batch.withdrawals:
                    self._dispatcher.withdrawn(withdrawal.request_id, withdrawal.attempt)
                if replies:
                    yield scheduler_pb2.DispatchReplies(replies=replies)
        finally:
            asyncio.get_running_loop().call_later(ORPHAN_SECONDS, self._dispatcher.gone, source)

    async def Attach(
        self, request_iterator: AsyncIterator[scheduler_pb2.WorkerReport], context: Any
    ) -> AsyncIterator[scheduler_pb2.WorkerCommand]:
        """Keep the worker a member for as long as the stream lasts."""
        attachment: WorkerAttachment | None = None
        reader: asyncio.Task[None] | None = None
        try:
            async for report in request_iterator:
                attachment = self._attach(report)
                break
            if attachment is not None:
                reader = asyncio.create_task(self._read(attachment, request_iterator))
                async for command in attachment.commands():
                    yield command
                if reader.done():
                    reader.result()
        finally:
            if reader is not None:
                reader.cancel()
            if attachment is not None:
                self._detach(attachment)

    async def _read(self, attachment: WorkerAttachment, reports: AsyncIterator[scheduler_pb2.WorkerReport]) -> None:
        try:
            async for report in reports:
                self._report(attachment, report)
        finally:
            attachment.close()

    async def Watch(
        self, request: scheduler_pb2.WatchRequest, context: Any
    ) -> AsyncIterator[scheduler_pb2.ClusterState]:
        """Send the cluster at once, and then what changes, or the whole of it to those who do not take changes."""
        self._leadership.observe_epoch(request.epoch)
        self._publish()
        sent, published = self._snapshot, self._published
        yield sent.whole()
        while True:
            await published.wait()
            snapshot, published = self._snapshot, self._published
            yield snapshot.changes(sent) if request.takes_changes else snapshot.whole()
            sent = snapshot

    @property
    def is_fair_among_tenants(self) -> bool:
        """Whether a worker divides its service among tenants first, so that only a tenant's users can be compared."""
        loads = (attachment.load for attachment in self._attachments.values())
        return any(each.level == "tenant" for load in loads for each in load.levels)

    def snapshot(self) -> ClusterSnapshot:
        """Return the cluster as gateways see it now."""
        now = time.monotonic()
        live = [member.identity.worker for member in self._dispatcher.live(now)]
        members = {worker: self._attachments[worker].view for worker in live}
        return ClusterSnapshot(members, self._dispatcher.overloaded(now), self._leadership.epoch)

    def status(self) -> scheduler_pb2.ClusterState:
        """Return the live members with their loads, by name, and their pools."""
        state = self.snapshot().whole()
        for member in state.members:
            member.CopyFrom(self._attachments[member.worker].status())
        return state

    def services(self) -> list[scheduler_pb2.WorkerService]:
        """Return each attached worker's service per client, for clients that have requests or had some lately."""
        workers = {name: scheduler_pb2.WorkerService(worker=name) for name in sorted(self._attachments)}
        for client, standing in sorted(self.client_services.latest(MOST_SERVICES).items()):
            for worker, service in standing.services.items():
                workers[worker].clients.append(to_client_service(client, service))
        return list(workers.values())

    def drain(self, worker: str) -> None:
        """Drain `worker`; raises InvalidRequest when it is not attached."""
        attachment = self._attached(worker)
        attachment.drain()
        self._loaded(attachment)
        self._changed.set()

    def flush(self, worker: str) -> None:
        """Flush the prefix cache of `worker`; raises InvalidRequest when it is not attached."""
        self._attached(worker).flush()

    def _attached(self, worker: str) -> WorkerAttachment:
        attachment = self._attachments.get(worker)
        if attachment is None:
            known = listed(sorted(self._attachments))
            raise InvalidRequest(f"no worker {worker[:CLIPPED]!r} is attached; attached: {known}", "worker")
        return attachment

    def _reply(self, message: scheduler_pb2.DispatchRequest, source: int) -> scheduler_pb2.DispatchReply:
        """Return the chosen worker, or the reason why there is none; a malformed request affects no other request."""
        reply = scheduler_pb2.DispatchReply(request_id=message.request_id, attempt=message.attempt)
        if self._leadership.epoch == STANDBY:
            reply.unplaced = scheduler_pb2.UNPLACED_STANDBY
            return reply
        try:
            assignment = self._dispatcher.dispatch(request_from(message), time.monotonic(), source)
        except InvalidRequest as error:
            log.error("request is malformed", extra={"request_id": message.request_id, "error": error.message})
            reply.unplaced, reply.problem = scheduler_pb2.UNPLACED_MALFORMED, error.message
            return reply
        if assignment is None:
            reply.unplaced = scheduler_pb2.UNPLACED_NO_WORKER
        else:
            identity = assignment.member.identity
            reply.worker, reply.instance, reply.address = identity.worker, identity.instance, identity.address
            reply.matched_tokens = assignment.matched_tokens
            reply.selected_at, reply.scheduler = time.time_ns(), self.instance
        return reply

    def _attach(self, report: scheduler_pb2.WorkerReport) -> WorkerAttachment:
        if report.WhichOneof("kind") != "hello":
            raise InvalidRequest("the first message of a worker must be its hello", "hello")
        hello = report.hello
        identity, cached = identity_from(hello), runs_from(hello.cached, "hello.cached")
        earlier = self._attachments.get(hello.worker)
        if earlier is not None:
            self._detach(earlier)
            earlier.close()
        member = self._dispatcher.attached(identity, cached, time.monotonic())
        self._slower_progressed(member, hello.slower)
        self._accepted(member, hello.requests)
        attachment = self._attachments[hello.worker] = WorkerAttachment(hello, member)
        self._check_cost(hello)
        self._changed.set()
        return attachment

    def _check_cost(self, hello: scheduler_pb2.Hello) -> None:
        """Log once that a worker charges by another cost function, since its cost units then differ from ours."""
        cost = hello.models[0].cost
        if cost and cost != self._cost and cost not in self._other_costs:
            self._other_costs.add(cost)
            worker = {"worker": hello.worker, "worker_cost": cost, "cost": self._cost}
            log.warning("a worker charges by another cost function", extra=worker)

    def _report(self, attachment: WorkerAttachment, report: scheduler_pb2.WorkerReport) -> None:
        kind = report.WhichOneof("kind")
        if kind == "load":
            load, view = report.load, attachment.view
            if load.services:
                self._served(attachment, load)
            attachment.loaded(load)
            self._loaded(attachment)
            if attachment.view is not view:
                self._changed.set()
        elif kind == "progress":
            self._progressed(attachment, report.progress)
        else:
            raise InvalidRequest(f"expected load or progress, got {kind}", "kind")

    def _progressed(self, attachment: WorkerAttachment, progress: scheduler_pb2.Progress) -> None:
        member = attachment.member
        cached = runs_from(progress.cached, "progress.cached")
        evicted = packed(progress.evicted, "progress.evicted")
        known = self._dispatcher.placed_by_others
        self._accepted(member, progress.accepted)
        if self._leadership.epoch != STANDBY:
            self.placed_by_others += self._dispatcher.placed_by_others - known
        for computed in progress.computed:
            self._dispatcher.computed(member, computed.request_id, computed.attempt)
        for end in progress.ended:
            self._dispatcher.ended(member, end.request_id, end.attempt, end.started, end.output_tokens)
        self._dispatcher.progressed(member, cached, evicted)
        self._slower_progressed(member, progress.slower)

    def _slower_progressed(self, member: Member, messages: Iterable[scheduler_pb2.SlowerBlocks]) -> None:
        for message in messages:
            cached, evicted = runs_from(message.cached, "slower.cached"), packed(message.evicted, "slower.evicted")
            self._dispatcher.slower_progressed(member, message.tier, cached, evicted)

    def _accepted(self, member: Member, messages: Iterable[scheduler_pb2.AcceptedRequest]) -> None:
        for message in messages:
            try:
                request = accepted_from(message, member.identity)
            except InvalidRequest as error:  # must not end the stream, which carries all other requests of the worker
                log.error("request is malformed", extra={"request_id": message.request_id, "error": error.message})
            else:
                self._dispatcher.accepted(member, request, time.monotonic(), message.cached_tokens)

    def _loaded(self, attachment: WorkerAttachment) -> None:
        self._dispatcher.reported(attachment.member, load_from(attachment.load), time.monotonic())

    def _served(self, attachment: WorkerAttachment, load: scheduler_pb2.Load) -> None:
        if self._is_current(attachment):
            for client, service in services_from(load):
                self.client_services.reported(attachment.worker, client, service)

    def _detach(self, attachment: WorkerAttachment) -> None:
        self._dispatcher.lost(attachment.member)
        if self._is_current(attachment):
            del self._attachments[attachment.worker]
            self.client_services.lost(attachment.worker)
            self._changed.set()

    def _is_current(self, attachment: WorkerAttachment) -> bool:
        return self._attachments.get(attachment.worker) is attachment
