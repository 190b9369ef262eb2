"""The ledger that simulated gateways share, and each gateway's link to it: what the service's RedisStore does."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from simulation.clock import VirtualClock
from simulation.spec import ClusterSpec
from throttler.core.lease_exchange import LeaseExchange
from throttler.core.lease_loop import ANSWER_SECONDS, BEAT_SECONDS, SETTLE_SECONDS, Heartbeat, LeaseLoop
from throttler.core.leased_quota import LeasedQuota, LeaseReply, LeaseRequest
from throttler.core.quota_ledger import QuotaLedger
from throttler.core.throttle import WINDOW_SECONDS
from throttler.core.windows import Counts, QuotaAccount, QuotaDemand

T = TypeVar("T")


class SharedLimits:
    """The ledger and the links of all gateways, one after the other; `idle` says whether the run is over."""

    def __init__(self, spec: ClusterSpec, clock: VirtualClock, idle: Callable[[], bool]) -> None:
        self.ledger = QuotaLedger(spec.window_seconds)
        self.clock = clock
        self.delay = spec.network_seconds
        # Times of the service keep their proportion to shorter windows.
        self.beat_seconds = BEAT_SECONDS / WINDOW_SECONDS * spec.window_seconds
        self.settle_seconds = SETTLE_SECONDS / WINDOW_SECONDS * spec.window_seconds
        self.idle = idle
        self.links: list[LeaseLink] = []

    def connect(self, leases: LeasedQuota, counts: Counts) -> "LeaseLink":
        """Return the link of another gateway, which counts in `counts`."""
        link = LeaseLink(f"gateway-{len(self.links)}", self, leases, counts)
        self.links.append(link)
        return link

    def start(self) -> None:
        """Let all gateways join before the first call arrives."""
        for link in self.links:
            link.join()

    def recall(self, account: QuotaAccount, by: "LeaseLink") -> None:
        """Ask all gateways but one to give back what they do not use."""
        for link in self.links:
            if link is not by and link.reachable:
                self.clock.after(self.delay, partial(link.recall, account))


class LeaseLink:
    """A gateway's link; while it is not `reachable`, what is under way in either direction is lost."""

    def __init__(self, name: str, shared: SharedLimits, leases: LeasedQuota, counts: Counts) -> None:
        self.name = name
        self.reachable = True
        self.degraded_at = -math.inf  # latest time at which the gateway counted by itself
        self.fewest_alone = math.inf  # the fewest gateways that it assumed then: it admits such a part of each limit
        self._shared = shared
        self._clock = shared.clock
        self._leases = leases
        exchange = LeaseExchange(leases, counts, shared.settle_seconds)
        self._loop: LeaseLoop[Callable[[], None]] = LeaseLoop(exchange, shared.beat_seconds)
        self._busy = False

    def join(self) -> None:
        """Begin to use leases, and talk with the ledger until the run is over."""
        now = self._clock.now
        assert isinstance(self._loop.next_message(now), Heartbeat)
        self._loop.heartbeat_answered(self._shared.ledger.beat(self.name, now), now)
        assert self._loop.settle(now), "calls before the first"
        self._run()

    def lease(self, demand: QuotaDemand, then: Callable[[], None]) -> None:
        """Request what `demand` lacks; call `then` after any answer, or now while degraded."""
        if self._loop.wait(demand, then):
            self._talk()
        else:
            then()

    def recall(self, account: QuotaAccount) -> None:
        """Give back what another gateway needs."""
        if self._loop.recall(account, self._clock.now):
            self._talk()

    def check_invariants(self) -> None:
        """Raise AssertionError when a lease or an exchange is impossible, or calls wait for nothing."""
        self._loop.check_invariants()

    def _run(self) -> None:
        self._talk()
        if not self._shared.idle() or self._clock.now == 0:
            self._clock.after(self._shared.beat_seconds, self._run)

    def _talk(self) -> None:
        """Send one message, if none is under way."""
        if self._busy:
            return
        match self._loop.next_message(self._clock.now):
            case None:
                return
            case Heartbeat():
                self._call(lambda: self._shared.ledger.beat(self.name, self._clock.now), self._heartbeat_answered)
            case requests:
                self._call(partial(self._ask, requests), partial(self._replied, requests))

    def _call(self, ask: Callable[[], T], then: Callable[[T], None]) -> None:
        """Execute `ask` at the ledger and `then` with its result here; count alone if no result comes."""
        self._busy = True
        self._clock.after(self._shared.delay, partial(self._arrive, ask, then, self._clock.now + ANSWER_SECONDS))

    def _arrive(self, ask: Callable[[], T], then: Callable[[T], None], until: float) -> None:
        if self.reachable:
            result = ask()
            self._clock.after(self._shared.delay, partial(self._return, partial(then, result), until))
        else:
            self._clock.at(until, self._degrade)

    def _return(self, then: Callable[[], None], until: float) -> None:
        if self.reachable:
            self._busy = False
            then()
            self._talk()
        else:
            self._clock.at(until, self._degrade)

    def _ask(self, requests: Sequence[LeaseRequest]) -> list[LeaseReply]:
        ledger, now, replies = self._shared.ledger, self._clock.now, list[LeaseReply]()
        for request in requests:
            replies.append(ledger.ask(self.name, request, self._leases.gateways, now))
            if replies[-1].recalled:
                self._shared.recall(request.account, by=self)
        ledger.check_invariants()
        return replies

    def _replied(self, requests: Sequence[LeaseRequest], replies: Sequence[LeaseReply]) -> None:
        released = self._loop.replied(requests, replies, self._clock.now)
        if (retry := self._loop.next_retry()) < math.inf:
            self._clock.at(retry, self._talk)
        self._settle()
        for then in released:
            then()

    def _heartbeat_answered(self, gateways: int) -> None:
        self._loop.heartbeat_answered(gateways, self._clock.now)
        self._settle()

    def _settle(self) -> None:
        if self._leases.degraded:
            self._counts_alone()
        self._loop.settle(self._clock.now)

    def _degrade(self) -> None:
        self._busy = False
        released = self._loop.degrade(self._clock.now)
        self._counts_alone()
        for then in released:
            then()

    def _counts_alone(self) -> None:
        self.degraded_at = self._clock.now
        self.fewest_alone = min(self.fewest_alone, self._leases.gateways)
