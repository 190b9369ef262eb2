"""The links to the schedulers of the cluster, of which one leads; see `gateway.core.followed_leader`."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from fairlead.v1 import scheduler_pb2
from gateway.core.followed_leader import NO_EPOCH, FollowedLeader, ReportKind
from gateway.upstream.members import Members
from gateway.upstream.placements import Decision
from gateway.upstream.scheduler import SchedulerLink, SchedulerUnavailable
from serving.rpc.mutual_tls import MutualTls
from serving.watched_cluster import WatchedCluster

log = logging.getLogger(__name__)
# Time in which workers may attach to a scheduler that took the lead or reconnected. A worker that has not attached by
# then is removed, unless this gateway has a session with it: then only its connection to the scheduler is broken, and
# it is checked again after the same time.
REATTACH_SECONDS = 5.0
# Overload is valid for this time after a report. While a pool is overloaded, the leader reports four times a second.
FRESH_SECONDS = 1.0


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

    async def select(self, request: scheduler_pb2.DispatchRequest) -> scheduler_pb2.DispatchReply:
        """Return the leader's reply; raise SchedulerUnavailable without a leader or a reply."""
        leader = self._followed.leader
        if leader is None:
            is_reporting = any(link.is_reporting for link in self._links)
            raise SchedulerUnavailable(Decision.NO_LEADER if is_reporting else Decision.NO_SCHEDULER)
        return await leader.select(request)

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
            former.give_up_decisions(Decision.NO_LEADER)
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
