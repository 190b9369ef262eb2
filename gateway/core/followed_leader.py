"""The scheduler that a gateway follows: of those that report, the one with the highest epoch leads."""

import enum
from typing import Generic, TypeVar

Scheduler = TypeVar("Scheduler")
NO_EPOCH = 0  # reported by a standby, and of a scheduler that is unreachable


class ReportKind(enum.Enum):
    """The meaning of a scheduler's report for the gateway."""

    FROM_LEADER = enum.auto()  # it counts
    FROM_NEW_LEADER = enum.auto()  # it counts, and its sender is followed from now on
    LEADER_LOST = enum.auto()  # its sender was followed and leads no longer; no scheduler is followed
    NEW_CONFLICT = enum.auto()  # its sender has the leader's epoch, and did not when it reported last; ignored
    IGNORED = enum.auto()  # from a standby, a deposed leader, or the sender of an earlier conflict


class FollowedLeader(Generic[Scheduler]):
    """The leader among several schedulers, and the highest epoch seen.

    A report with a lower epoch comes from a deposed leader that has not yet noticed its successor. If two schedulers
    report the same epoch, because both were started without Redis, the first one is followed.
    """

    def __init__(self) -> None:
        self.epoch = NO_EPOCH
        self.leader: Scheduler | None = None
        self._conflicting: Scheduler | None = None

    def reported(self, scheduler: Scheduler, epoch: int) -> ReportKind:
        """Return what a report with `epoch` means; NO_EPOCH if the scheduler has become unreachable."""
        if epoch == NO_EPOCH or epoch < self.epoch:
            if scheduler != self.leader:
                return ReportKind.IGNORED
            self.leader = None
            return ReportKind.LEADER_LOST
        if self.leader is None or epoch > self.epoch:
            self.leader, self.epoch, self._conflicting = scheduler, epoch, None
            return ReportKind.FROM_NEW_LEADER
        if scheduler == self.leader:
            return ReportKind.FROM_LEADER
        if scheduler == self._conflicting:
            return ReportKind.IGNORED
        self._conflicting = scheduler
        return ReportKind.NEW_CONFLICT

    def check_invariants(self) -> None:
        """Raise AssertionError if a leader is followed that has no epoch, or is in conflict with itself."""
        assert self.leader is None or self.epoch > NO_EPOCH, f"{self.leader} leads in epoch {self.epoch}"
        assert self._conflicting is None or self._conflicting != self.leader, f"{self.leader} contradicts itself"
