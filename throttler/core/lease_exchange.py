"""One gateway's side of the conversation with the ledger: which accounts it asks about when, and who waits.

An exchange is a list of requests that are sent together; the next exchange begins after its replies. An account about
which calls wait is wanted until an exchange takes it up, then asked until the reply; after a recall it is held, once,
until the other gateways have given back. So calls wait for at most two exchanges. `degrade` ends every wait.
"""

from collections.abc import Sequence
from typing import NamedTuple

from throttler.core.leased_quota import LeasedQuota, LeaseReply, LeaseRequest
from throttler.core.windows import Counts, QuotaAccount, QuotaDemand


class ExchangeEnd(NamedTuple):
    """The keys of accounts whose calls wait no longer, and of those whose calls wait for other gateways."""

    settled: list[str]
    held: list[str]


class LeaseExchange:
    """The requests of one gateway; `window` counts its arrivals, and times are in seconds of one clock.

    After a time without the ledger the gateway reports what it counted, and uses leases again after `settle_seconds`,
    in which the other gateways report too.
    """

    def __init__(self, leases: LeasedQuota, window: Counts, settle_seconds: float) -> None:
        self.leases = leases
        self._window = window
        self._settle_seconds = settle_seconds
        self._wanted: dict[str, QuotaDemand] = {}
        self._asked: dict[str, int] = {}  # accounts of the current exchange: what waiting calls need; 0 if none wait
        self._held: dict[str, QuotaDemand] = {}
        self._was_held: set[str] = set()  # accounts that are wanted or asked a second time, after a recall
        self._settled_at: float | None = None  # when leases may be used again
        self._has_met = False  # the ledger has answered once

    @property
    def has_wanted(self) -> bool:
        """Whether calls wait for a request that no exchange has taken up."""
        return bool(self._wanted)

    def want(self, demand: QuotaDemand) -> None:
        """Request `demand` with the next exchange, unless a request for waiting calls is under way."""
        key = demand.account.key
        if not self._asked.get(key) and key not in self._held:
            self._wanted[key] = max(demand, self._wanted.get(key, demand), key=lambda each: each.amount)

    def begin(self, now: float) -> list[LeaseRequest]:
        """Return the requests of the next exchange; none while degraded, or when nothing is wanted or due."""
        if self.leases.degraded:
            return []
        demands = {account.key: QuotaDemand(account, 0) for account in self.leases.take_due()} | self._wanted
        self._asked = {key: demand.amount for key, demand in demands.items()}
        self._wanted = {}
        return [self._request(demand.account, demand.amount, now) for demand in demands.values()]

    def end(
        self, requests: Sequence[LeaseRequest], replies: Sequence[LeaseReply], asked_at: float, now: float
    ) -> ExchangeEnd:
        """Apply the replies, in the order of the requests, which were made at `asked_at`."""
        end = ExchangeEnd([], [])
        for request, reply in zip(requests, replies, strict=True):
            self.leases.answered(request, reply, asked_at, now)
            amount = self._asked.get(request.account.key, 0)
            if not amount:
                continue
            # A gateway whose calls wait gives nothing back: two that waited for each other's capacity would never end.
            if reply.recalled and request.account.key not in self._was_held:
                self._held[request.account.key] = QuotaDemand(request.account, amount)
                end.held.append(request.account.key)
            else:
                self._was_held.discard(request.account.key)
                end.settled.append(request.account.key)
        self._asked = {}
        return end

    def try_again(self, key: str) -> None:
        """Want a held account again: the other gateways have had the time to give back."""
        if key in self._held:
            self._wanted[key] = self._held.pop(key)
            self._was_held.add(key)

    def recall(self, account: QuotaAccount, now: float) -> bool:
        """Give back unused capacity that another gateway needs; return whether an exchange is due."""
        if account.key in self._asked or account.key in self._wanted or account.key in self._held:
            return False
        return self.leases.recalled(account, self._window.used(account.key, now), now)

    def heartbeat_answered(self, gateways: int, now: float) -> list[LeaseRequest]:
        """Apply the reply to a heartbeat: the number of gateways.

        Return what must be reported before leases are used again; then call `settle`.
        """
        self.leases.set_gateways(gateways, now)
        if not self.leases.degraded or self._settled_at is not None:
            return []
        counted = [(account, self._window.used(account.key, now)) for account in self._window.accounts()]
        is_new = not self._has_met and not counted  # there is nothing to report
        self._settled_at = now if is_new else now + self._settle_seconds
        self._has_met = True
        return [self._request(account, 0, now) for account, used in counted if self.leases.misjudged(account, used)]

    def settle(self, now: float) -> bool:
        """Use leases again if it is time; return whether the gateway was degraded until now."""
        if not self.leases.degraded or self._settled_at is None or now < self._settled_at:
            return False
        self.leases.restore(now)
        return True

    def degrade(self) -> None:
        """Count without the ledger from now on; nothing is wanted any more."""
        self.leases.degrade()
        self._wanted, self._asked, self._held, self._was_held, self._settled_at = {}, {}, {}, set(), None

    def check_invariants(self) -> None:
        """Raise AssertionError if calls wait for an account in two ways, or while the gateway is degraded."""
        self.leases.check_invariants()
        asked = {key for key, waits in self._asked.items() if waits}
        assert not asked & self._held.keys(), f"{asked} asked, {self._held} held"
        assert not self._wanted.keys() & (asked | self._held.keys()), f"{self._wanted} wanted and under way"
        assert self._was_held <= self._wanted.keys() | asked, f"{self._was_held} held before, and no call waits"
        assert not (self.leases.degraded and (self._wanted or self._asked or self._held)), "wanted while degraded"

    def _request(self, account: QuotaAccount, more: int, now: float) -> LeaseRequest:
        return self.leases.ask(account, self._window.used(account.key, now), more, now)
