"""One gateway's part of limits that all gateways share.

A lease is capacity, not a number of calls: who holds `n` of a limit lets at most `n` arrivals through in any window.
What all gateways hold never exceeds the limit, so neither does what they let through, in a true sliding window, however
skewed the traffic is; and under steady traffic nobody needs to ask again.

- Of each limit a gateway has `limit / 2R` without asking (R gateways), so rarely used accounts never cost a call.
- Beyond that it asks, and gets `max(1, remaining / 2R)` more (`throttler.core.ledger`). A refusal is remembered for a
  sixteenth of a window.
- When little is left, gateways are asked to give back what they have not used.
- Arrivals that were let through beyond a lease, because nothing was overloaded, are reported in batches.
- A lease is valid for one window after it was asked for and counts at the ledger for two: what was let through at its
  very end has left the window by then.
- Without the shared state each gateway counts up to `limit / R` by itself: degraded.
"""

from dataclasses import dataclass

from throttler.core.quota import Account
from throttler.core.windows import ASK_AGAIN

MARGIN = 1 / 60  # of a window: how much longer than the ledger a gateway remembers that it is registered there


@dataclass(frozen=True, slots=True)
class Ask:
    """What a gateway tells the ledger about one account, and whether it wants `more` (1) or nothing (0)."""

    account: Account
    held: int
    used: int
    more: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What it holds from now on; `recalled`: others were just asked to give back, so another try may get more."""

    capacity: int
    recalled: bool


@dataclass(slots=True)
class _Lease:
    capacity: int
    reported: int  # arrivals that the ledger knows of
    valid_until: float
    refused_until: float
    forget_at: float


class Leases:
    """The Quota of one of several gateways. Starts degraded; `gateways`: how many there are at least."""

    def __init__(self, seconds: float, gateways: int = 1) -> None:
        self.degraded = True
        self.gateways = gateways
        self._seconds = seconds
        self._joined = 0.0
        self._most = gateways, 0.0  # the most gateways heard of within a window, and until when they count
        self._leases: dict[str, _Lease] = {}  # the longest unanswered one first
        self._due: dict[str, Account] = {}

    def allowance(self, account: Account, now: float) -> int:
        """See Quota."""
        if self.degraded:
            return max(1, account.limit // self.gateways)
        lease = self._leases.get(account.key)
        if lease is None:
            return self._unasked(account.limit, now)
        return min(lease.capacity, account.limit) if now < lease.valid_until else 0

    def may_grow(self, account: Account, used: int, now: float) -> bool:
        """See Quota."""
        if self.degraded or used >= account.limit:
            return False
        lease = self._leases.get(account.key)
        return lease is None or now >= lease.refused_until

    def counted(self, account: Account, used: int, now: float) -> None:
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

    def take_due(self) -> list[Account]:
        """The accounts of which the ledger should hear soon; each is returned once."""
        due, self._due = list(self._due.values()), {}
        return due

    def ask(self, account: Account, used: int, more: int, now: float) -> Ask:
        """What to tell the ledger now; `used`: arrivals counted here in the window."""
        return Ask(account, 0 if self.degraded else self.allowance(account, now), used, more)

    def answered(self, ask: Ask, answer: Answer, asked_at: float, now: float) -> None:
        """The ledger's answer; answers of one account come in the order in which they were given."""
        if self.degraded:
            return
        self._forget(now)
        refused = ask.more and answer.capacity <= ask.used
        self._leases.pop(ask.account.key, None)
        self._leases[ask.account.key] = _Lease(
            capacity=answer.capacity,
            reported=ask.used,
            valid_until=asked_at + self._seconds,
            refused_until=now + self._seconds * ASK_AGAIN if refused else now,
            forget_at=now + (2 + MARGIN) * self._seconds,
        )

    def recalled(self, account: Account, used: int, now: float) -> bool:
        """Others need of `account` what is not used here: at once no more than that. True: the ledger should hear."""
        allowance = self.allowance(account, now)
        lease = self._leases.get(account.key)
        if self.degraded or (lease is not None and allowance <= used):
            return False
        capacity, forget_at = min(allowance, used), now + (2 + MARGIN) * self._seconds
        valid_until = lease.valid_until if lease is not None else now + self._seconds
        self._leases.pop(account.key, None)
        self._leases[account.key] = _Lease(capacity, used, valid_until, now, forget_at)
        self._due[account.key] = account
        return True

    def heard(self, gateways: int, now: float) -> None:
        """How many gateways there are. When some leave, the others take over their part only after a window."""
        self.gateways = gateways
        if gateways >= self._most[0] or now >= self._most[1]:
            self._most = gateways, now + self._seconds

    def degrade(self) -> None:
        """The shared state is out of reach: what is held there is not known any more."""
        self.degraded = True
        self._due.clear()
        for lease in self._leases.values():
            lease.capacity = 0

    def misjudged(self, account: Account, used: int) -> bool:
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
        return limit // (2 * self._most[0]) if now >= self._joined + self._seconds else 0

    def _forget(self, now: float) -> None:
        while self._leases:
            key, lease = next(iter(self._leases.items()))
            if lease.forget_at > now:
                return
            del self._leases[key]
