"""The ledger that simulated gateways share, and each gateway's link to it: what the service's RedisStore does."""

import math
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from simulation.clock import VirtualClock
from simulation.spec import ClusterSpec
from throttler.core.lease_exchange import LeaseExchange
from throttler.core.leased_quota import LeasedQuota, LeaseReply, LeaseRequest
from throttler.core.quota import QuotaAccount, QuotaDemand
from throttler.core.quota_ledger import QuotaLedger
from throttler.core.windows import Counts

T = TypeVar("T")
# Times of the service as parts of its window of 60 s: they keep their proportion to shorter windows.
BEAT_WINDOWS = 1 / 60
SETTLE_WINDOWS = 3 / 60
ANSWER_SECONDS = 0.25  # longer than any simulated round trip
RECALL_SECONDS = 0.02


class SharedLimits:
    """The ledger and the links of all gateways, one after the other; `idle` says whether the run is over."""

    def __init__(self, spec: ClusterSpec, clock: VirtualClock, idle: Callable[[], bool]) -> None:
        self.ledger = QuotaLedger(spec.window_seconds)
        self.clock = clock
        self.delay = spec.network_seconds
        self.beat_seconds = BEAT_WINDOWS * spec.window_seconds
        self.settle_seconds = SETTLE_WINDOWS * spec.window_seconds
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
        self._exchange = LeaseExchange(leases, counts, shared.settle_seconds)
        self._waiting: dict[str, list[Callable[[], None]]] = {}  # by key of the account
        self._busy = False
        self._beat_at = 0.0

    @property
    def gateways(self) -> int:
        """The number of gateways that this one assumes."""
        return self._exchange.gateways

    def join(self) -> None:
        """Begin to use leases, and talk with the ledger until the run is over."""
        now = self._clock.now
        assert not self._exchange.heartbeat_answered(self._shared.ledger.beat(self.name, now), now), (
            "calls before the first"
        )
        self._exchange.settle(now)
        self._run()

    def lease(self, demand: QuotaDemand, then: Callable[[], None]) -> None:
        """Request what `demand` lacks; call `then` after any answer, or now while degraded."""
        if self._exchange.degraded:
            then()
            return
        self._waiting.setdefault(demand.account.key, []).append(then)
        self._exchange.want(demand)
        self._talk()

    def recall(self, account: QuotaAccount) -> None:
        """Give back what another gateway needs."""
        if self._exchange.recall(account, self._clock.now):
            self._talk()

    def check_invariants(self) -> None:
        """Raise AssertionError when a lease or an exchange is impossible, or calls wait for nothing."""
        self._exchange.check_invariants()
        assert not (self._waiting and self._exchange.degraded), f"{self.name}: calls wait for {list(self._waiting)}"

    def _run(self) -> None:
        self._talk()
        if not self._shared.idle() or self._clock.now == 0:
            self._clock.after(self._shared.beat_seconds, self._run)

    def _talk(self) -> None:
        """Send one message, if none is under way."""
        now = self._clock.now
        if self._busy:
            return
        if now >= self._beat_at:
            self._call(lambda: self._shared.ledger.beat(self.name, self._clock.now), self._heartbeat_answered)
        elif requests := self._exchange.begin(now):
            self._call(partial(self._ask, requests), partial(self._answered, requests, now))

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

    def _ask(self, requests: list[LeaseRequest]) -> list[LeaseReply]:
        ledger, now, replies = self._shared.ledger, self._clock.now, list[LeaseReply]()
        for request in requests:
            replies.append(ledger.ask(self.name, request, self._exchange.gateways, now))
            if replies[-1].recalled:
                self._shared.recall(request.account, by=self)
        ledger.check_invariants()
        return replies

    def _answered(self, requests: list[LeaseRequest], asked_at: float, replies: list[LeaseReply]) -> None:
        end = self._exchange.end(requests, replies, asked_at, self._clock.now)
        for key in end.held:
            self._clock.after(RECALL_SECONDS, partial(self._try_again, key))
        for key in end.settled:
            self._release(key)

    def _try_again(self, key: str) -> None:
        self._exchange.try_again(key)
        self._talk()

    def _heartbeat_answered(self, gateways: int) -> None:
        # Counted from the answer: where a round trip takes as long as the time between beats, requests have their turn.
        self._beat_at = self._clock.now + self._shared.beat_seconds
        reports = self._exchange.heartbeat_answered(gateways, self._clock.now)
        if reports:
            self._call(partial(self._ask, reports), lambda replies: self._settle())
        else:
            self._settle()

    def _settle(self) -> None:
        if self._exchange.degraded:
            self._counts_alone()
        self._exchange.settle(self._clock.now)

    def _degrade(self) -> None:
        self._busy = False
        self._exchange.degrade()
        self._counts_alone()
        for key in list(self._waiting):
            self._release(key)

    def _counts_alone(self) -> None:
        self.degraded_at = self._clock.now
        self.fewest_alone = min(self.fewest_alone, self.gateways)

    def _release(self, key: str) -> None:
        for then in self._waiting.pop(key, []):
            then()
