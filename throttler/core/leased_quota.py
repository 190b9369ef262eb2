"""One gateway's part of limits that all gateways share.

A lease is capacity, not a number of calls: a gateway that holds `n` of a limit admits at most `n` arrivals in any
window. All gateways together never hold more than the limit, so they never admit more than the limit in a true sliding
window, however skewed the traffic is. Under steady traffic no gateway has to request again.

- A gateway may use `limit / 2R` of each limit without a request (R gateways), so rarely used accounts cost no round
  trip.
- Beyond that it requests what it lacks, at least 1, and receives that or `remaining / 2R`, whichever is more, if that
  much is left (`throttler.core.quota_ledger`). After a refusal it waits before the next request; each further refusal
  in a row doubles the wait.
- When nothing is left, the other gateways are asked to give back unused capacity, except a reserve.
- Arrivals that were admitted beyond a lease, because no pool was overloaded, are reported in batches.
- A lease is valid for one window after its request and counts at the ledger for two windows: arrivals admitted at its
  end have then left the window.
- Without the shared state each gateway admits up to `limit / R` by itself: it is degraded.
"""

from dataclasses import dataclass

from throttler.core.windows import QuotaAccount

RECALL_AGAIN = 1 / 128  # of a window: the shortest time between two recalls of one account
MOST_PATIENCE = 1 / 4  # of a window: the longest wait after refusals
# Durations in windows. A lease granted before a change can be used for one more window, and its arrivals count in the
# window after that.
JOINING = 3  # the ledger reserves a new gateway's part after one window
LEAVING = 2  # the ledger distributes the part of a gateway that left at once
FORGETTING = 4 + 1 / 60  # the ledger drops an entry after two windows of its own clock


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """A gateway's report to the ledger about one account.

    `more` is what the gateway needs to admit beyond `used`: 1 for a call, the reservation for tokens, 0 for a report.
    """

    account: QuotaAccount
    held: int
    used: int
    more: int


@dataclass(frozen=True, slots=True)
class LeaseReply:
    """The gateway's capacity from now on.

    `recalled` means that other gateways were just asked to give back, so another request may receive more.
    """

    capacity: int
    recalled: bool


@dataclass(slots=True)
class _Lease:
    capacity: int
    reported: int  # arrivals that were reported to the ledger
    refusals: int  # in a row
    valid_until: float
    refused_until: float
    forget_at: float


class LeasedQuota:
    """The quota of one of several gateways, which starts degraded.

    `gateways` is the assumed number of gateways until `set_gateways` is called. See Quota.
    """

    def __init__(self, seconds: float, gateways: int = 1) -> None:
        self.degraded = True
        self.gateways = gateways
        self._seconds = seconds
        self._joined = 0.0
        self._most = gateways, 0.0  # the recent maximum of gateways, and the time until which it counts
        self._leases: dict[str, _Lease] = {}  # the lease whose last answer is oldest comes first
        self._due: dict[str, QuotaAccount] = {}

    def allowance(self, account: QuotaAccount, now: float) -> int:
        if self.degraded:
            return max(1, account.limit // self.gateways)
        lease = self._leases.get(account.key)
        if lease is None:
            return self._unasked(account.limit, now)
        return min(lease.capacity, account.limit) if now < lease.valid_until else 0

    def may_grow(self, account: QuotaAccount, used: int, now: float) -> bool:
        if self.degraded or used >= account.limit:
            return False
        lease = self._leases.get(account.key)
        return lease is None or now >= lease.refused_until

    def counted(self, account: QuotaAccount, used: int, now: float) -> None:
        if self.degraded:
            return
        lease, batch = self._leases.get(account.key), max(1, account.limit // (2 * self.gateways))
        if lease is None:
            due = used >= self._unasked(account.limit, now) + batch
        else:
            unreported = used > lease.capacity and used - lease.reported >= batch
            due = unreported or now >= lease.valid_until - self._seconds / 2
        if due:
            self._due[account.key] = account

    def take_due(self) -> list[QuotaAccount]:
        """Return the accounts that should be reported to the ledger soon; each is returned once."""
        due, self._due = list(self._due.values()), {}
        return due

    def ask(self, account: QuotaAccount, used: int, more: int, now: float) -> LeaseRequest:
        """Return the request to the ledger; `used` is the number of arrivals counted here in the window."""
        return LeaseRequest(account, 0 if self.degraded else self.allowance(account, now), used, more)

    def answered(self, ask: LeaseRequest, answer: LeaseReply, asked_at: float, now: float) -> None:
        """Apply the ledger's answer; the answers about one account must come in the order in which they were given."""
        if self.degraded:
            return
        self._forget(now)
        earlier = self._leases.pop(ask.account.key, None)
        refusals = earlier.refusals if earlier is not None else 0
        if ask.more:
            refusals = refusals + 1 if answer.capacity < ask.used + ask.more else 0
        patience = min(RECALL_AGAIN * 2 ** (refusals - 1), MOST_PATIENCE) if ask.more and refusals else 0.0
        self._leases[ask.account.key] = _Lease(
            capacity=answer.capacity,
            reported=ask.used,
            refusals=refusals,
            valid_until=asked_at + self._seconds,
            refused_until=now + self._seconds * patience,
            forget_at=now + FORGETTING * self._seconds,
        )

    def recalled(self, account: QuotaAccount, used: int, now: float) -> bool:
        """Give back unused capacity of `account`, which other gateways need; return whether to report to the ledger."""
        allowance, lease = self.allowance(account, now), self._leases.get(account.key)
        is_held = lease is not None and now < lease.valid_until
        if self.degraded or (is_held and allowance <= used):
            return False
        kept = (allowance - used) // 2 if used else 0  # a reserve, so that the gateway does not request again at once
        capacity, forget_at = min(allowance, used + kept), now + FORGETTING * self._seconds
        valid_until = lease.valid_until if lease is not None and is_held else now + self._seconds
        self._leases.pop(account.key, None)
        self._leases[account.key] = _Lease(capacity, used, 0, valid_until, now, forget_at)
        self._due[account.key] = account
        return True

    def set_gateways(self, gateways: int, now: float) -> None:
        """Set the number of gateways, about once a second. A smaller number takes effect after LEAVING windows."""
        self._forget(now)
        self.gateways = gateways
        if gateways >= self._most[0] or now >= self._most[1]:
            self._most = gateways, now + LEAVING * self._seconds

    def degrade(self) -> None:
        """Count without the shared state from now on: it is unreachable, and leases are no longer valid."""
        self.degraded = True
        self._due.clear()
        for lease in self._leases.values():
            lease.capacity = 0

    def misjudged(self, account: QuotaAccount, used: int) -> bool:
        """Return whether the ledger would assume fewer arrivals than the `used` counted here while degraded."""
        return account.key in self._leases or used > account.limit // (2 * self._most[0])

    def restore(self, now: float) -> None:
        """Use leases from now on: the shared state is reachable again, or for the first time."""
        self.degraded = False
        self._joined = now

    def check_invariants(self) -> None:
        last = float("-inf")
        for key, lease in self._leases.items():
            assert lease.capacity >= 0, f"{key}: holds {lease.capacity}"
            assert lease.forget_at >= last, f"{key}: kept behind a lease that is to be forgotten later"
            assert lease.valid_until < lease.forget_at, f"{key}: forgotten while valid"
            last = lease.forget_at

    def _unasked(self, limit: int, now: float) -> int:
        """Return the capacity without a request; 0 for a gateway that joined recently, as others may still hold it."""
        return limit // (2 * self._most[0]) if now >= self._joined + JOINING * self._seconds else 0

    def _forget(self, now: float) -> None:
        while self._leases:
            key, lease = next(iter(self._leases.items()))
            if lease.forget_at > now:
                return
            del self._leases[key]
