"""The part of a limit that one gateway may use by itself."""

from typing import NamedTuple, Protocol


class QuotaAccount(NamedTuple):
    """A counter of arrivals, or of amounts: its key, and how much all gateways together may admit per window."""

    key: str
    limit: int


class QuotaDemand(NamedTuple):
    """The quota that a call lacks: it needs `amount` of the account within this process's allowance."""

    account: QuotaAccount
    amount: int = 1


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
