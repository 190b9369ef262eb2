"""Counters of arrivals per account, in sliding and in fixed windows.

A sliding window only has to determine whether an account had `limit` arrivals within the last `seconds`. The times of
its newest `limit` arrivals suffice for that, so a flood of calls costs no more memory than the limit. Accounts are kept
in order of their last arrival; an account whose last arrival has left the window is removed.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple, Protocol


class QuotaAccount(NamedTuple):
    """A counter of arrivals, or of amounts: its key, and how much all gateways together may admit per window."""

    key: str
    limit: int


class QuotaDemand(NamedTuple):
    """The quota that a call lacks: it needs `amount` of the account within this process's allowance."""

    account: QuotaAccount
    amount: int = 1


class LimitStatus(NamedTuple):
    """The rest of a limit: of `limit` calls or tokens in a window `remaining` at this gateway.

    `reset` are the seconds until all of them remain again, unless calls arrive before.
    """

    limit: int
    remaining: int
    reset: float


class Quota(Protocol):
    """The allowance of one gateway, read before each decision and updated after each arrival.

    `now` is in seconds and never decreases.
    """

    def allowance(self, account: QuotaAccount, now: float) -> int:
        """Return how many arrivals per window this gateway may admit."""

    def may_grow(self, account: QuotaAccount, used: int, now: float) -> bool:
        """Return whether a request for more of the limit could succeed; `used` arrivals are counted in the window."""

    def counted(self, account: QuotaAccount, used: int, now: float) -> None:
        """Record that an arrival was counted, within the allowance or not; `used` includes it."""

    def check_invariants(self) -> None:
        """Raise AssertionError with detail when the state is impossible."""


class LocalQuota:
    """The quota of a single gateway, which may use every limit alone. See Quota."""

    def allowance(self, account: QuotaAccount, now: float) -> int:
        return account.limit

    def may_grow(self, account: QuotaAccount, used: int, now: float) -> bool:
        return False

    def counted(self, account: QuotaAccount, used: int, now: float) -> None:
        """See Quota; there is nothing to record."""

    def check_invariants(self) -> None:
        """See Quota; there is no state."""


ASK_AGAIN = 1 / 16  # of a window: the wait of a refused call when this gateway's allowance is 0


class Counts(Protocol):
    """The counts per account, for processes that share limits."""

    def used(self, key: str, now: float) -> int:
        """Return what is counted in the window that ends now."""

    def accounts(self) -> list[QuotaAccount]:
        """Return all accounts in which something is counted."""


class Window(Counts, Protocol):
    """A counter of arrivals that compares them with the quota's allowance for this gateway."""

    def fits(self, account: QuotaAccount, now: float) -> bool:
        """Return whether an arrival now would be within the allowance; count nothing."""

    def may_grow(self, account: QuotaAccount, now: float) -> bool:
        """Return whether a request for more of the limit could succeed; see Quota."""

    def arrived(self, account: QuotaAccount, now: float) -> float:
        """Count an arrival; return 0 if it is within the allowance, else the seconds until another one would be."""

    def used(self, key: str, now: float) -> int:
        """Return the number of arrivals in the window that ends now, at most the limit."""

    def status(self, account: QuotaAccount, now: float) -> LimitStatus:
        """Return what is left of the account's limit."""

    def accounts(self) -> list[QuotaAccount]:
        """Return all accounts that have counted arrivals."""

    def exhausted(self, now: float) -> dict[QuotaAccount, float]:
        """Return the accounts that have used their whole limit, with the seconds until another arrival fits."""

    def check_invariants(self) -> None:
        """Raise AssertionError with detail when the state is impossible."""


def growable(window: Window, accounts: Iterable[QuotaAccount], now: float) -> QuotaAccount | None:
    """Return the first of `accounts` in which no arrival fits, if a request for more of its limit could succeed."""
    for account in accounts:
        if not window.fits(account, now):
            return account if window.may_grow(account, now) else None
    return None


class SlidingWindow:
    """A window over the last `seconds` before each arrival; arrivals beyond the allowance count too. See Window."""

    def __init__(self, seconds: float, quota: Quota) -> None:
        self.seconds = seconds
        self._quota = quota
        self._arrivals: dict[str, deque[float]] = {}  # maxlen: the limit

    def __len__(self) -> int:
        return len(self._arrivals)

    def fits(self, account: QuotaAccount, now: float) -> bool:
        return self.used(account.key, now) < self._quota.allowance(account, now)

    def may_grow(self, account: QuotaAccount, now: float) -> bool:
        return self._quota.may_grow(account, self.used(account.key, now), now)

    def arrived(self, account: QuotaAccount, now: float) -> float:
        self._forget(now)
        key, limit = account
        used, allowance = self.used(key, now), self._quota.allowance(account, now)
        times = self._arrivals.pop(key, None)
        if times is None or times.maxlen != limit:
            times = deque(times or (), limit)
        times.append(now)
        self._arrivals[key] = times
        self._quota.counted(account, len(times), now)
        if used < allowance:
            return 0.0
        return times[-allowance] - (now - self.seconds) if allowance else self.seconds * ASK_AGAIN

    def used(self, key: str, now: float) -> int:
        times = self._arrivals.get(key)
        if times is None:
            return 0
        start = now - self.seconds
        while times and times[0] <= start:
            times.popleft()
        return len(times)

    def status(self, account: QuotaAccount, now: float) -> LimitStatus:
        key, limit = account
        used = self.used(key, now)
        return LimitStatus(limit, max(0, limit - used), self._arrivals[key][-1] + self.seconds - now if used else 0.0)

    def accounts(self) -> list[QuotaAccount]:
        return [QuotaAccount(key, times.maxlen or 0) for key, times in self._arrivals.items()]

    def exhausted(self, now: float) -> dict[QuotaAccount, float]:
        return {
            QuotaAccount(key, len(times)): times[0] + self.seconds - now
            for key, times in self._arrivals.items()
            if len(times) == times.maxlen and times[0] + self.seconds > now
        }

    def check_invariants(self) -> None:
        """Raise AssertionError unless times are bounded and ordered, and keys are ordered by last arrival."""
        last = float("-inf")
        for key, times in self._arrivals.items():
            assert times.maxlen, f"{key}: an unbounded list of times"
            assert list(times) == sorted(times), f"{key}: times out of order"
            if times:
                assert times[-1] >= last, f"{key}: kept behind a key that arrived later"
                last = times[-1]

    def _forget(self, now: float) -> None:
        while self._arrivals:
            key, times = next(iter(self._arrivals.items()))
            if times and times[-1] > now - self.seconds:
                return
            del self._arrivals[key]


class FixedWindow:
    """Consecutive windows of `seconds` of the clock, each of which starts its count at 0.

    Arrivals beyond the allowance are not counted: where gateways share a limit, the others may still admit as many.
    See Window.
    """

    def __init__(self, seconds: float, quota: Quota) -> None:
        self.seconds = seconds
        self._quota = quota
        self._window = 0
        self._counts: dict[str, tuple[int, int]] = {}  # key -> arrivals, limit

    def fits(self, account: QuotaAccount, now: float) -> bool:
        return self.used(account.key, now) < self._quota.allowance(account, now)

    def may_grow(self, account: QuotaAccount, now: float) -> bool:
        return self._quota.may_grow(account, self.used(account.key, now), now)

    def arrived(self, account: QuotaAccount, now: float) -> float:
        used, allowance = self.used(account.key, now), self._quota.allowance(account, now)
        if used >= allowance:
            return (self._window + 1) * self.seconds - now
        self._counts[account.key] = used + 1, account.limit
        self._quota.counted(account, used + 1, now)
        return 0.0

    def used(self, key: str, now: float) -> int:
        window = int(now // self.seconds)
        if window != self._window:
            self._window = window
            self._counts.clear()
        return self._counts[key][0] if key in self._counts else 0

    def status(self, account: QuotaAccount, now: float) -> LimitStatus:
        key, limit = account
        used = self.used(key, now)
        return LimitStatus(limit, max(0, limit - used), (self._window + 1) * self.seconds - now if used else 0.0)

    def accounts(self) -> list[QuotaAccount]:
        return [QuotaAccount(key, limit) for key, (_, limit) in self._counts.items()]

    def exhausted(self, now: float) -> dict[QuotaAccount, float]:
        if int(now // self.seconds) != self._window:
            return {}
        left = (self._window + 1) * self.seconds - now
        return {QuotaAccount(key, limit): left for key, (count, limit) in self._counts.items() if count >= limit}

    def check_invariants(self) -> None:
        """Raise AssertionError unless counts are positive and within the limit."""
        for key, (count, limit) in self._counts.items():
            assert 0 < count <= limit, f"{key}: {count} arrivals counted, limit {limit}"
