"""The links to the schedulers of the cluster, of which one leads and decides; see `gateway.core.followed_leader`."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

import grpc

from fairlead.rpc.cancellation import reraise_cancellation
from fairlead.v1 import scheduler_pb2, scheduler_pb2_grpc
from gateway.core.followed_leader import NO_EPOCH, FollowedLeader, ReportKind
from gateway.upstream.members import Members
from gateway.upstream.placements import PlacementReason
from serving.rpc.channel import open_channel, secret_metadata
from serving.rpc.coalescing_writer import CoalescingWriter
from serving.rpc.mutual_tls import MutualTls
from serving.watched_cluster import WatchedCluster

log = logging.getLogger(__name__)
# Time in which workers may attach to a scheduler that took the lead or reconnected. A worker that has not attached by
# then is removed, unless this gateway has a session with it: then only its connection to the scheduler is broken, and
# it is checked again after the same time.
REATTACH_SECONDS = 5.0
# Overload is valid for this time after a report. While a pool is overloaded, the leader reports four times a second.
FRESH_SECONDS = 1.0
RECONNECT_SECONDS = 0.2
# A decision takes well below a millisecond; a scheduler that does not answer must not hold requests longer than this.
DECISION_SECONDS = 1.0

Stream = Callable[[scheduler_pb2_grpc.SchedulerStub], Awaitable[None]]
OnReport = Callable[["SchedulerLink", WatchedCluster | None], None]


class SchedulerUnavailable(Exception):
    """No leading scheduler decided, so the gateway chooses the worker itself; `reason` says why."""

    def __init__(self, reason: PlacementReason) -> None:
        super().__init__(reason)
        self.reason = reason


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
            raise SchedulerUnavailable(PlacementReason.NO_SCHEDULER)
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
            decision.set_exception(SchedulerUnavailable(PlacementReason.NO_SCHEDULER))

    def withdraw(self, request_id: str, attempt: int) -> None:
        """Return an assignment to the scheduler; its worker will not report it."""
        if self._writer is not None:
            self._writer.pending.withdrawals.add(request_id=request_id, attempt=attempt)
            self._writer.flush()

    def give_up_decisions(self, reason: PlacementReason) -> None:
        """End all pending `select` calls with SchedulerUnavailable: the scheduler no longer leads or answers."""
        for answer in self._decisions.values():
            if not answer.done():
                answer.set_exception(SchedulerUnavailable(reason))

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
            self.give_up_decisions(PlacementReason.NO_SCHEDULER)

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


class SchedulerLinks:
    """The links to all schedulers; `members` follow the reports of the leader.

    `changed` is called when `members` may have changed; `connected` returns whether this gateway has a session with a
    worker.

    What standbys report counts while workers may not have attached to the leader: a worker that has just started may
    have reached a standby first.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        secret: str,
        members: Members,
        connected: Callable[[scheduler_pb2.Member], bool],
        changed: Callable[[], None],
        mutual_tls: MutualTls | None = None,
    ) -> None:
        self._members = members
        self._connected = connected
        self._changed = changed
        self._followed: FollowedLeader[SchedulerLink] = FollowedLeader()
        self._reports: dict[SchedulerLink, WatchedCluster | None] = {}
        self._reattach_timer: asyncio.TimerHandle | None = None
        self._overload_expiry: asyncio.TimerHandle | None = None
        self._links = [
            SchedulerLink(address, secret, self._on_report, lambda: self._followed.epoch, mutual_tls)
            for address in addresses
        ]

    async def run(self) -> None:
        """Keep the links open until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for link in self._links:
                    tasks.create_task(link.run())
        finally:
            self._cancel_reattach_timer()
            self._cancel_overload_expiry()

    def select(self, request: scheduler_pb2.DispatchRequest) -> Awaitable[scheduler_pb2.DispatchReply]:
        """Return the leader's reply; raise SchedulerUnavailable without a leader, at once, or without a reply."""
        leader = self._followed.leader
        if leader is None:
            is_reporting = any(link.is_reporting for link in self._links)
            raise SchedulerUnavailable(PlacementReason.NO_LEADER if is_reporting else PlacementReason.NO_SCHEDULER)
        return leader.select(request)

    def withdraw(self, request_id: str, attempt: int) -> None:
        """Return an assignment to the leader; it ignores one of an earlier leader that no worker reported."""
        if self._followed.leader is not None:
            self._followed.leader.withdraw(request_id, attempt)

    def _on_report(self, link: SchedulerLink, report: WatchedCluster | None) -> None:
        self._reports[link] = report
        former = self._followed.leader
        match self._followed.reported(link, NO_EPOCH if report is None else report.epoch):
            case ReportKind.FROM_LEADER:
                assert report is not None
                self._update(report)
            case ReportKind.FROM_NEW_LEADER:
                assert report is not None
                self._follow(link, former)
                self._update(report)
            case ReportKind.LEADER_LOST:
                self._lose()
                self._inherit()
            case ReportKind.NEW_CONFLICT:
                self._log_conflict(link)
            case ReportKind.IGNORED:
                self._inherit()

    def _update(self, report: WatchedCluster) -> None:
        has_changed = self._members.update(report)
        self._cancel_overload_expiry()
        if self._members.overloaded_models():
            self._overload_expiry = asyncio.get_running_loop().call_later(FRESH_SECONDS, self._forget_overload)
        if has_changed:
            self._changed()

    def _follow(self, link: SchedulerLink, former: SchedulerLink | None) -> None:
        log.info("follows scheduler", extra={"scheduler": link.address, "epoch": self._followed.epoch})
        if former is not None and former is not link:
            former.give_up_decisions(PlacementReason.NO_LEADER)
        self._members.follow()
        self._start_reattach_timer()
        self._inherit_from_standbys()

    def _inherit(self) -> None:
        if self._inherit_from_standbys():
            self._changed()

    def _inherit_from_standbys(self) -> bool:
        """Inherit what standbys report, unless workers had the time to attach to a leader; return whether that changes
        anything."""
        if self._followed.leader is not None and self._reattach_timer is None:
            return False
        standbys = [report for report in self._reports.values() if report is not None and report.epoch == 0]
        changes = [self._members.inherit(standby) for standby in standbys]
        return any(changes)

    def _log_conflict(self, other: SchedulerLink) -> None:
        followed = self._followed.leader
        log.error(
            "two schedulers lead at once: give them one Redis, or leave one out",
            extra={"followed": followed and followed.address, "ignored": other.address},
        )

    def _lose(self) -> None:
        self._members.follow()
        self._cancel_reattach_timer()
        self._forget_overload()

    def _forget_overload(self) -> None:
        self._cancel_overload_expiry()
        self._members.forget_overload()
        self._changed()

    def _start_reattach_timer(self) -> None:
        self._cancel_reattach_timer()
        self._reattach_timer = asyncio.get_running_loop().call_later(REATTACH_SECONDS, self._end_reattach)

    def _end_reattach(self) -> None:
        self._reattach_timer = None
        self._members.disinherit(self._connected)
        if self._members.inherited:
            self._start_reattach_timer()
        self._changed()

    def _cancel_reattach_timer(self) -> None:
        if self._reattach_timer is not None:
            self._reattach_timer.cancel()
            self._reattach_timer = None

    def _cancel_overload_expiry(self) -> None:
        if self._overload_expiry is not None:
            self._overload_expiry.cancel()
            self._overload_expiry = None
