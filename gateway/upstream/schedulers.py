"""The schedulers of the cluster, of which one leads: the one with the highest epoch."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from fairlead.v1 import scheduler_pb2
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

    States with an epoch below the highest seen come from a deposed leader and are ignored. If two schedulers report the
    same epoch (both started without Redis), the first is followed. What standbys report counts while workers may not
    have attached to the leader: one that was started anew may have reached a standby first.
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
        self._epoch = 0
        self._leader: SchedulerLink | None = None
        self._reports: dict[SchedulerLink, WatchedCluster | None] = {}
        self._conflicting: SchedulerLink | None = None  # has the leader's epoch; its reports are ignored
        self._reattach_timer: asyncio.TimerHandle | None = None
        self._overload_expiry: asyncio.TimerHandle | None = None
        self._links = [
            SchedulerLink(address, secret, self._on_report, lambda: self._epoch, mutual_tls) for address in addresses
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
        if self._leader is None:
            is_reporting = any(link.is_reporting for link in self._links)
            raise SchedulerUnavailable(Decision.NO_LEADER if is_reporting else Decision.NO_SCHEDULER)
        return await self._leader.select(request)

    def withdraw(self, request_id: str, attempt: int) -> None:
        """Return an assignment to the leader; it ignores one of an earlier leader that no worker reported."""
        if self._leader is not None:
            self._leader.withdraw(request_id, attempt)

    def _on_report(self, link: SchedulerLink, report: WatchedCluster | None) -> None:
        self._reports[link] = report
        if report is None or report.epoch == 0 or report.epoch < self._epoch:
            if link is self._leader:
                self._lose()
            if self._hear_standbys():
                self._changed()
            return
        if self._leader is None or report.epoch > self._epoch:
            self._follow(link, report.epoch)
        elif link is not self._leader:
            self._report_conflict(link)
            return
        has_changed = self._members.update(report)
        self._cancel_overload_expiry()
        if self._members.overloaded_models():
            self._overload_expiry = asyncio.get_running_loop().call_later(FRESH_SECONDS, self._forget_overload)
        if has_changed:
            self._changed()

    def _follow(self, link: SchedulerLink, epoch: int) -> None:
        log.info("follows scheduler", extra={"scheduler": link.address, "epoch": epoch})
        if self._leader is not None and self._leader is not link:
            self._leader.give_up_decisions(Decision.NO_LEADER)
        self._leader, self._epoch, self._conflicting = link, epoch, None
        self._members.follow()
        self._start_reattach_timer()
        self._hear_standbys()

    def _hear_standbys(self) -> bool:
        """Inherit what standbys report, unless workers had the time to attach to a leader; return whether that changes
        anything."""
        if self._leader is not None and self._reattach_timer is None:
            return False
        standbys = [report for report in self._reports.values() if report is not None and report.epoch == 0]
        changes = [self._members.hear(standby) for standby in standbys]
        return any(changes)

    def _report_conflict(self, other: SchedulerLink) -> None:
        if self._conflicting is not other:
            self._conflicting = other
            log.error(
                "two schedulers lead at once: give them one Redis, or leave one out",
                extra={"followed": self._leader and self._leader.address, "ignored": other.address},
            )

    def _lose(self) -> None:
        self._leader = None
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
