"""A counter of amounts, such as tokens, per account in a sliding window.

An amount is booked when it is reserved, and changed when it is known: what was not needed is given back, what was
needed beyond it is booked as well. The window is divided into SLICES. The amounts of a slice leave the window together,
when its end has left it: an amount is counted for at most 1 / SLICES of a window too long and never too short, so no
true sliding window holds more than the limit, and an account takes the memory of SLICES numbers however many calls it
makes.
"""

from dataclasses import dataclass, field

from throttler.core.quota import Quota, QuotaAccount
from throttler.core.windows import ASK_AGAIN

SLICES = 64


@dataclass(slots=True)
class _Booked:
    limit: int
    total: int = 0
    slices: dict[int, int] = field(default_factory=dict)  # number of the slice -> amount; the oldest comes first


class TokenWindow:
    """A window over the last `seconds`, whose amounts are compared with the quota's allowance for this process."""

    def __init__(self, seconds: float, quota: Quota) -> None:
        self.seconds = seconds
        self._quota = quota
        self._accounts: dict[str, _Booked] = {}  # the account whose last booking is oldest comes first

    def fits(self, account: QuotaAccount, amount: int, now: float) -> bool:
        """Return whether `amount` more would be within the allowance; book nothing."""
        return self.used(account.key, now) + amount <= self._quota.allowance(account, now)

    def may_grow(self, account: QuotaAccount, amount: int, now: float) -> bool:
        """Return whether a request for more of the limit could make `amount` fit; see Quota."""
        return self._quota.may_grow(account, self.used(account.key, now) + amount - 1, now)

    def left(self, account: QuotaAccount, now: float) -> int:
        """Return how much of the allowance is left."""
        return max(0, self._quota.allowance(account, now) - self.used(account.key, now))

    def wait(self, account: QuotaAccount, amount: int, now: float) -> float:
        """Return the seconds until `amount` fits, if nothing is booked until then; more than 0.

        An amount above the allowance never fits: the result is then the time after which it may be larger.
        """
        excess = self.used(account.key, now) + amount - self._quota.allowance(account, now)
        for number, booked in self._accounts[account.key].slices.items() if account.key in self._accounts else ():
            excess -= booked
            if excess <= 0:
                return self._leaves_at(number) - now
        return self.seconds * ASK_AGAIN

    def book(self, account: QuotaAccount, amount: int, now: float) -> int:
        """Book `amount`, within the allowance or not; return the number of the slice for `give_back`."""
        self._forget(now)
        used, number = self.used(account.key, now), self._slice(now)
        booked = self._accounts.pop(account.key, None) or _Booked(account.limit)
        booked.limit = account.limit
        booked.slices[number] = booked.slices.get(number, 0) + amount
        booked.total += amount
        self._accounts[account.key] = booked
        self._quota.counted(account, used + amount, now)
        return number

    def give_back(self, account: QuotaAccount, number: int, amount: int, now: float) -> None:
        """Take back `amount` of what was booked in the slice `number`; nothing changes if the slice has left."""
        self.used(account.key, now)
        booked = self._accounts.get(account.key)
        if booked is not None and number in booked.slices:
            booked.slices[number] -= amount
            booked.total -= amount

    def used(self, key: str, now: float) -> int:
        """Return the amount in the window that ends now."""
        booked = self._accounts.get(key)
        if booked is None:
            return 0
        while booked.slices and self._leaves_at(number := next(iter(booked.slices))) <= now:
            booked.total -= booked.slices.pop(number)
        return booked.total

    def reset(self, key: str, now: float) -> float:
        """Return the seconds until no amount that is booked now counts any more; 0 where none is."""
        return self._leaves_at(next(reversed(self._accounts[key].slices))) - now if self.used(key, now) else 0.0

    def accounts(self) -> list[QuotaAccount]:
        """Return all accounts that have bookings."""
        return [QuotaAccount(key, booked.limit) for key, booked in self._accounts.items()]

    def exhausted(self, now: float) -> dict[QuotaAccount, float]:
        """Return the accounts that have used their whole limit, with the seconds until something leaves the window."""
        return {
            account: self._leaves_at(next(iter(self._accounts[account.key].slices))) - now
            for account in self.accounts()
            if self.used(account.key, now) >= account.limit
        }

    def check_invariants(self) -> None:
        """Raise AssertionError unless totals match the slices, and slices and accounts are in their order."""
        for key, booked in self._accounts.items():
            assert booked.total == sum(booked.slices.values()), f"{key}: {booked.total} of {booked.slices}"
            assert all(amount >= 0 for amount in booked.slices.values()), f"{key}: {booked.slices}"
            assert list(booked.slices) == sorted(booked.slices), f"{key}: slices out of order"
        newest = [max(booked.slices) for booked in self._accounts.values() if booked.slices]
        assert newest == sorted(newest), "an account is kept behind one that booked later"

    def _slice(self, now: float) -> int:
        return int(now * SLICES // self.seconds)

    def _leaves_at(self, number: int) -> float:
        return (number + 1) * self.seconds / SLICES + self.seconds

    def _forget(self, now: float) -> None:
        while self._accounts:
            key = next(iter(self._accounts))
            self.used(key, now)
            if self._accounts[key].slices:
                return
            del self._accounts[key]
