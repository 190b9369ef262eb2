"""The gateway's link to one global scheduler: its dispatch decisions, and its reports about the cluster."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import grpc

from fairlead.rpc.cancellation import reraise_cancellation
from fairlead.v1 import scheduler_pb2, scheduler_pb2_grpc
from gateway.upstream.placements import Decision
from serving.rpc.channel import open_channel, secret_metadata
from serving.rpc.coalescing_writer import CoalescingWriter
from serving.rpc.mutual_tls import MutualTls
from serving.watched_cluster import WatchedCluster

log = logging.getLogger(__name__)
RECONNECT_SECONDS = 0.2
# A decision takes well below a millisecond; a scheduler that does not answer must not hold requests longer than this.
DECISION_SECONDS = 1.0

Stream = Callable[[scheduler_pb2_grpc.SchedulerStub], Awaitable[None]]
OnReport = Callable[["SchedulerLink", WatchedCluster | None], None]


class SchedulerUnavailable(Exception):
    """No leading scheduler decided, so the gateway chooses the worker itself; `decision` is the reason."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision)
        self.decision = decision


class SchedulerLink:
    """One Dispatch and one Watch stream to a scheduler, which are reopened whenever they break.

    `on_report` is called with every report, and with None when the Watch stream breaks; `epoch` returns the highest
    epoch seen so far.
    """

    def __init__(
        self,
        address: str,
        secret: str,
        on_report: OnReport,
        epoch: Callable[[], int],
        mutual_tls: MutualTls | None = None,
    ) -> None:
        self.address = address
        self._mutual_tls = mutual_tls
        self._metadata = secret_metadata(secret)
        self._on_report = on_report
        self._epoch = epoch
        self.is_reporting = False  # whether its Watch stream delivers states, as leader or standby
        self._writer: CoalescingWriter[scheduler_pb2.DispatchBatch] | None = None
        self._has_writer = asyncio.Event()
        self._decisions: dict[tuple[str, int], asyncio.Future[scheduler_pb2.DispatchReply]] = {}

    async def select(self, request: scheduler_pb2.DispatchRequest) -> scheduler_pb2.DispatchReply:
        """Return the scheduler's reply; raise SchedulerUnavailable without one within DECISION_SECONDS."""
        if self._writer is None:
            raise SchedulerUnavailable(Decision.NO_SCHEDULER)
        key, loop = (request.request_id, request.attempt), asyncio.get_running_loop()
        decision: asyncio.Future[scheduler_pb2.DispatchReply] = loop.create_future()
        self._decisions[key] = decision
        self._writer.pending.requests.append(request)
        self._writer.flush()
        limit = loop.call_later(DECISION_SECONDS, self._take_too_long, key)
        try:
            return await decision
        except asyncio.CancelledError:
            self.withdraw(*key)
            raise
        finally:
            limit.cancel()
            self._decisions.pop(key, None)

    def _take_too_long(self, key: tuple[str, int]) -> None:
        decision = self._decisions[key]
        if not decision.done():
            self.withdraw(*key)
            decision.set_exception(SchedulerUnavailable(Decision.NO_SCHEDULER))

    def withdraw(self, request_id: str, attempt: int) -> None:
        """Return an assignment to the scheduler; its worker will not report it."""
        if self._writer is not None:
            self._writer.pending.withdrawals.add(request_id=request_id, attempt=attempt)
            self._writer.flush()

    def give_up_decisions(self, decision: Decision) -> None:
        """End all pending `select` calls with SchedulerUnavailable: the scheduler no longer leads or answers."""
        for answer in self._decisions.values():
            if not answer.done():
                answer.set_exception(SchedulerUnavailable(decision))

    async def run(self) -> None:
        """Keep both streams open until cancelled."""
        async with open_channel(self.address, self._mutual_tls) as channel, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._for_ever(self._dispatch, channel))
            tasks.create_task(self._for_ever(self._watch, channel))

    async def _for_ever(self, stream: Stream, channel: grpc.aio.Channel) -> None:
        while True:
            try:
                await channel.channel_ready()
                await stream(scheduler_pb2_grpc.SchedulerStub(channel))
            except grpc.aio.AioRpcError as error:
                reraise_cancellation()
                log.warning("scheduler is away", extra={"scheduler": self.address, "error": error.details()})
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _dispatch(self, stub: scheduler_pb2_grpc.SchedulerStub) -> None:
        writer = CoalescingWriter(scheduler_pb2.DispatchBatch)
        call = stub.Dispatch(writer.messages(), metadata=self._metadata)
        self._writer = writer
        self._has_writer.set()
        try:
            async for batch in call:
                for reply in batch.replies:
                    decision = self._decisions.get((reply.request_id, reply.attempt))
                    if decision is not None and not decision.done():
                        decision.set_result(reply)
        finally:
            self._writer = None
            self._has_writer.clear()
            writer.close()
            self.give_up_decisions(Decision.NO_SCHEDULER)

    async def _watch(self, stub: scheduler_pb2_grpc.SchedulerStub) -> None:
        # A scheduler that reports is asked for decisions at once, so it is watched only after it can be asked.
        await self._has_writer.wait()
        request = scheduler_pb2.WatchRequest(epoch=self._epoch(), takes_changes=True)
        cluster = WatchedCluster()
        try:
            async for state in stub.Watch(request, metadata=self._metadata):
                self.is_reporting = True
                cluster.apply(state)
                self._on_report(self, cluster)
        finally:
            self.is_reporting = False
            self._on_report(self, None)
