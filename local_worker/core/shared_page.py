"""A page that several clients have used, who pay for it in equal parts."""

from collections import OrderedDict

from local_worker.core.page_account import PAGE, ClientAccount


class SharedPage:
    """What each client pays for one page: together a whole page at least, and nobody more than a page. O(1) per call.

    A client that uses the page pays its equal part from then on, and the one that used it longest ago so much less, if
    that is not below its own part. When a client gives the page up, the one that used it last pays in its place.
    """

    __slots__ = ("_parts", "paid")

    def __init__(self, first: ClientAccount) -> None:
        self._parts: OrderedDict[ClientAccount, int] = OrderedDict({first: PAGE})  # who used it last comes last
        self.paid = PAGE  # by all together, in units of PAGE

    def __len__(self) -> int:
        return len(self._parts)

    def __contains__(self, account: ClientAccount) -> bool:
        return account in self._parts

    @property
    def last(self) -> ClientAccount:
        """The client that used it last."""
        return next(reversed(self._parts))

    def used(self, account: ClientAccount) -> ClientAccount | None:
        """Charge the equal part to `account`, which uses the page. Return the client that pays less for it now, the one
        that used the page longest ago, if there is one."""
        before = self._parts.pop(account, 0)
        others, equal = self.paid - before, PAGE // (len(self._parts) + 1)
        part = max(equal, PAGE - others)
        self._parts[account] = part
        account.pay(part - before)
        first = next(iter(self._parts))
        relief = min(others + part - PAGE, self._parts[first] - equal)
        self.paid = others + part
        if first is account or relief <= 0:
            return None
        self._parts[first] -= relief
        self.paid -= relief
        first.pay(-relief)
        return first

    def given_up(self, account: ClientAccount) -> ClientAccount:
        """Pass what `account` pays on to the client that used the page last, and return that."""
        part = self._parts.pop(account)
        heir = self.last
        before = self._parts[heir]
        after = min(PAGE, before + part)
        self._parts[heir] = after
        self.paid += after - before - part
        account.pay(-part)
        heir.pay(after - before)
        return heir

    def part(self, account: ClientAccount) -> int:
        """Return what `account` pays, in units of PAGE."""
        return self._parts[account]

    def check_invariants(self) -> None:
        """Raise AssertionError unless they pay for the page, and nobody for more."""
        assert self.paid == sum(self._parts.values()) >= PAGE, f"{self.paid} of {PAGE} is paid"
        assert all(0 < part <= PAGE for part in self._parts.values()), f"{self._parts}"
