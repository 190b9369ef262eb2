"""One gateway's part of limits that all gateways share.

A lease is capacity, not a number of calls: who holds `n` of a limit lets at most `n` arrivals through in any window.
What all gateways hold never exceeds the limit, so neither does what they let through, in a true sliding window, however
skewed the traffic is; and under steady traffic nobody needs to ask again.

- Of each limit a gateway has `limit / 2R` without asking (R gateways), so rarely used accounts never cost a call.
- Beyond that it asks, and gets `max(1, remaining / 2R)` more (`throttler.core.quota_ledger`). A refusal is remembered,
  twice as long each time in a row.
- When nothing is left, the others are asked to give back what they have not used, but for some reserve.
- Arrivals that were let through beyond a lease, because nothing was overloaded, are reported in batches.
- A lease is valid for one window after it was asked for and counts at the ledger for two: what was let through at its
  very end has left the window by then.
- Without the shared state each gateway counts up to `limit / R` by itself: degraded.
"""

from dataclasses import dataclass

from throttler.core.quota import QuotaAccount

RECALL_AGAIN = 1 / 128  # of a window: others are asked to give back no more often
MOST_PATIENCE = 1 / 4  # of a window: how long a refusal is remembered at most
# In windows. What was given before something changed is used for one window at most, and seen in the one after it.
JOINING = 3  # the ledger reserves a newcomer's part after one
LEAVING = 2  # it shares out the part of one that left at once
FORGETTING = 4 + 1 / 60  # it drops an entry after two, by another clock


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """What a gateway tells the ledger about one account, and whether it wants `more` (1) or nothing (0)."""

    account: QuotaAccount
    held: int
    used: int
    more: int


@dataclass(frozen=True, slots=True)
class LeaseReply:
    """What it holds from now on; `recalled`: others were just asked to give back, so another try may get more."""

    capacity: int
    recalled: bool


@dataclass(slots=True)
class _Lease:
    capacity: int
    reported: int  # arrivals that the ledger knows of
    refusals: int  # in a row
    valid_until: float
    refused_until: float
    forget_at: float


class LeasedQuota:
    """The Quota of one of several gateways. Starts degraded; `gateways`: how many there are until it is heard."""

    def __init__(self, seconds: float, gateways: int = 1) -> None:
        self.degraded = True
        self.gateways = gateways
        self._seconds = seconds
        self._joined = 0.0
        self._most = gateways, 0.0  # the most gateways heard of lately, and until when they count
        self._leases: dict[str, _Lease] = {}  # the longest unanswered one first
        self._due: dict[str, QuotaAccount] = {}

    def allowance(self, account: QuotaAccount, now: float) -> int:
        """See Quota."""
        if self.degraded:
            return max(1, account.limit // self.gateways)
        lease = self._leases.get(account.key)
        if lease is None:
            return self._unasked(account.limit, now)
        return min(lease.capacity, account.limit) if now < lease.valid_until else 0

    def may_grow(self, account: QuotaAccount, used: int, now: float) -> bool:
        """See Quota."""
        if self.degraded or used >= account.limit:
            return False
        lease = self._leases.get(account.key)
        return lease is None or now >= lease.refused_until

    def counted(self, account: QuotaAccount, used: int, now: float) -> None:
        """See Quota."""
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
        """The accounts of which the ledger should hear soon; each is returned once."""
        due, self._due = list(self._due.values()), {}
        return due

    def ask(self, account: QuotaAccount, used: int, more: int, now: float) -> LeaseRequest:
        """What to tell the ledger now; `used`: arrivals counted here in the window."""
        return LeaseRequest(account, 0 if self.degraded else self.allowance(account, now), used, more)

    def answered(self, ask: LeaseRequest, answer: LeaseReply, asked_at: float, now: float) -> None:
        """The ledger's answer; answers of one account come in the order in which they were given."""
        if self.degraded:
            return
        self._forget(now)
        earlier = self._leases.pop(ask.account.key, None)
        refusals = earlier.refusals if earlier is not None else 0
        if ask.more:
            refusals = refusals + 1 if answer.capacity <= ask.used else 0
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
        """Others need of `account` what is not used here: at once no more than that. True: the ledger should hear."""
        allowance, lease = self.allowance(account, now), self._leases.get(account.key)
        is_held = lease is not None and now < lease.valid_until
        if self.degraded or (is_held and allowance <= used):
            return False
        kept = (allowance - used) // 2 if used else 0  # not to need it again at once
        capacity, forget_at = min(allowance, used + kept), now + FORGETTING * self._seconds
        valid_until = lease.valid_until if lease is not None and is_held else now + self._seconds
        self._leases.pop(account.key, None)
        self._leases[account.key] = _Lease(capacity, used, 0, valid_until, now, forget_at)
        self._due[account.key] = account
        return True

    def heard(self, gateways: int, now: float) -> None:
        """How many gateways there are, every second or so. When some leave, others take over only after a while."""
        self._forget(now)
        self.gateways = gateways
        if gateways >= self._most[0] or now >= self._most[1]:
            self._most = gateways, now + LEAVING * self._seconds

    def degrade(self) -> None:
        """The shared state is out of reach: what is held there is not known any more."""
        self.degraded = True
        self._due.clear()
        for lease in self._leases.values():
            lease.capacity = 0

    def misjudged(self, account: QuotaAccount, used: int) -> bool:
        """Whether the ledger would expect less than the `used` that was counted here while degraded."""
        return account.key in self._leases or used > account.limit // (2 * self._most[0])

    def restore(self, now: float) -> None:
        """The shared state is back, or heard of for the first time."""
        self.degraded = False
        self._joined = now

    def check_invariants(self) -> None:
        """See Quota."""
        last = float("-inf")
        for key, lease in self._leases.items():
            assert lease.capacity >= 0, f"{key}: holds {lease.capacity}"
            assert lease.forget_at >= last, f"{key}: kept behind a lease that is to be forgotten later"
            assert lease.valid_until < lease.forget_at, f"{key}: forgotten while valid"
            last = lease.forget_at

    def _unasked(self, limit: int, now: float) -> int:
        """A gateway that has just joined has nothing without asking: others may hold it still."""
        return limit // (2 * self._most[0]) if now >= self._joined + JOINING * self._seconds else 0

    def _forget(self, now: float) -> None:
        while self._leases:
            key, lease = next(iter(self._leases.items()))
            if lease.forget_at > now:
                return
            del self._leases[key]
