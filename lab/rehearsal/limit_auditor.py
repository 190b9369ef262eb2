"""Check that all gateways together admit no more calls than each limit."""

import math
from collections import deque
from collections.abc import Callable, Sequence

from lab.rehearsal.shared_limits import LeaseLink
from simulation.spec import ClusterSpec
from throttler.core.decider import Permit
from throttler.core.windows import QuotaAccount


class LimitAuditor:
    """The auditor of every admitted call. Violations raise AssertionError.

    What is promised: under `oit`, calls that are admitted while the pool is overloaded, and protected calls at any
    time, never exceed their limits in any window that slides; under `rpm`, no calls do in any window of the clock. Each
    gateway that counted by itself within the last two windows may have admitted its own part of the limit on top.
    """

    def __init__(self, spec: ClusterSpec, links: Sequence[LeaseLink]) -> None:
        self._limits = spec.limits
        self._seconds = spec.window_seconds
        self._links = links
        self._times: dict[str, deque[float]] = {}
        checks: dict[str, Callable[[Permit, float], None]] = {"oit": self._check_oit, "rpm": self._check_rpm}
        self.admitted = checks.get(spec.throttle, lambda permit, now: None)

    def _check_oit(self, permit: Permit, now: float) -> None:
        caller = permit.arrival.caller
        if permit.protected:
            account = QuotaAccount(
                f"protected calls of {caller.client}", self._limits.kappa * self._limits.user_per_minute
            )
            self._count(account, now - self._seconds, now)
            if self._limits.tenant_per_minute is not None:
                cap = self._limits.kappa * self._limits.tenant_per_minute
                self._count(QuotaAccount(f"protected calls of tenant {caller.tenant}", cap), now - self._seconds, now)
        elif permit.arrival.overloaded:
            self._check_all(permit, now - self._seconds, now)

    def _check_rpm(self, permit: Permit, now: float) -> None:
        start = now // self._seconds * self._seconds
        self._check_all(permit, math.nextafter(start, -math.inf), now)

    def _check_all(self, permit: Permit, start: float, now: float) -> None:
        caller = permit.arrival.caller
        self._count(QuotaAccount(f"calls of {caller.client}", self._limits.user_per_minute), start, now)
        self._count(QuotaAccount(f"calls of app {caller.app}", self._limits.app_per_minute), start, now)
        if self._limits.tenant_per_minute is not None:
            account = QuotaAccount(f"calls of tenant {caller.tenant}", self._limits.tenant_per_minute)
            self._count(account, start, now)

    def _count(self, account: QuotaAccount, start: float, now: float) -> None:
        """Count an admitted call at `now` among those after `start`."""
        times = self._times.setdefault(account.key, deque())
        times.append(now)
        while times[0] <= start:
            times.popleft()
        alone = [link for link in self._links if link.degraded_at > now - 2 * self._seconds]
        most = account.limit + sum(max(1, int(account.limit // link.fewest_alone)) for link in alone)
        assert len(times) <= most, f"{len(times)} {account.key} admitted in a window, the limit is {account.limit}"
