"""How much of a limit this gateway may use by itself."""

from typing import NamedTuple, Protocol


class QuotaAccount(NamedTuple):
    """What arrivals are counted in: a key and the most arrivals that all gateways together may let through."""

    key: str
    limit: int


class Quota(Protocol):
    """Asked before each decision, told after each arrival; `now` in seconds, never decreasing."""

    def allowance(self, account: QuotaAccount, now: float) -> int:
        """The most arrivals per window that this gateway may let through."""

    def may_grow(self, account: QuotaAccount, used: int, now: float) -> bool:
        """Whether asking for more of the limit could help; `used`: arrivals counted here in the window."""

    def counted(self, account: QuotaAccount, used: int, now: float) -> None:
        """An arrival was counted, within the allowance or not."""

    def check_invariants(self) -> None:
        """Raise AssertionError with detail when the state is impossible."""


class LocalQuota:
    """The only gateway: every limit is all its own."""

    def allowance(self, account: QuotaAccount, now: float) -> int:
        """See Quota."""
        return account.limit

    def may_grow(self, account: QuotaAccount, used: int, now: float) -> bool:
        """See Quota."""
        return False

    def counted(self, account: QuotaAccount, used: int, now: float) -> None:
        """See Quota; nobody needs to know."""

    def check_invariants(self) -> None:
        """See Quota; nothing can be wrong."""
