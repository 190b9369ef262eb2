"""What one process knows of budgets' accounts: what it booked, what others did, and what it may book without asking.

A process that shares its accounts books within a lease, which the ledger has counted already
(`throttler.core.budget_ledger`); one that is alone books up to the limit. What a protected call books beyond the lease
is reported at once.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from throttler.core.budget import BudgetAccount, BudgetWindow
from throttler.core.budget_ledger import BudgetEntry, BudgetReply, BudgetRequest, entry_of
from throttler.core.windows import QuotaAccount

ASK_AGAIN = 1 / 16  # of a window: the wait of a call that never fits
SHORTEST_PATIENCE, LONGEST_PATIENCE = 0.05, 2.0  # seconds without requests for as much, after refusals in a row
SWEPT = 2  # accounts that each booking looks at, whether they can be forgotten


@dataclass(slots=True)
class _Account:
    account: BudgetAccount
    # Slot -> amount, the oldest first: what was booked here, and what others had booked or held at the last answer.
    own: dict[int, int] = field(default_factory=dict)
    others: dict[int, int] = field(default_factory=dict)
    own_total: int = 0
    others_total: int = 0
    peers: dict[str, str] = field(default_factory=dict)  # their entries, for a ledger that loses its data
    spent: int = 0  # all that was booked here, ever
    lease: int = 0  # less than 0 where more was booked
    granted: int = 0  # the lease at the last answer
    at: int = 0  # the slot of the last request, of which the lease is
    version: int = 0
    refusals: int = 0  # in a row
    refused: int = 0  # the amount that was refused last
    refused_until: float = -math.inf


class BudgetAccounts:
    """The accounts at this process; `now` is in seconds of a monotonic clock and never decreases."""

    def __init__(self, *, is_shared: bool = False) -> None:
        self._is_shared = is_shared
        self._accounts: dict[str, _Account] = {}  # the one that was swept last is last
        self._due: dict[str, None] = {}
        self._closed: dict[str, None] = {}
        self._started: float | None = None  # Unix time less `now`, as it was first measured
        self._unix_offset = 0.0

    def synchronize(self, unix_offset: float) -> None:
        """Set the offset of Unix time. Only calendar windows follow a wall clock that is set later."""
        self._unix_offset = unix_offset
        if self._started is None:
            self._started = unix_offset

    def fits(self, account: BudgetAccount, amount: int, now: float) -> bool:
        """Return whether `amount` more may be booked; book nothing."""
        if not self._is_shared:
            return self.used(account, now) + amount <= account.limit
        found = self._known(account, now)
        if found is None or amount > self._lease(found, now):
            return False
        return found.own_total + amount <= account.limit

    def may_grow(self, account: BudgetAccount, amount: int, now: float) -> bool:
        """Return whether a request to the ledger could make `amount` fit."""
        if not self._is_shared or amount > account.limit:
            return False
        found = self._known(account, now)
        return found is None or now >= found.refused_until or amount < found.refused

    def used(self, account: BudgetAccount, now: float) -> int:
        """Return what all processes have booked in the window that ends now, as far as this one knows."""
        found = self._known(account, now)
        return found.own_total + found.others_total if found is not None else 0

    def wait(self, account: BudgetAccount, amount: int, now: float) -> float:
        """Return the seconds until `amount` fits, if nothing is booked until then; more than 0.

        An amount above the limit never fits: the result is then the time after which the limit may be larger.
        """
        if amount > account.limit:
            return account.window.seconds * ASK_AGAIN
        excess = self.used(account, now) + amount - account.limit
        for slot, booked in self._slots(account) if excess > 0 else ():
            excess -= booked
            if excess <= 0:
                return account.window.leaves_at(slot) - self._at(account.window, now)
        return LONGEST_PATIENCE / 2  # only a lease is lacking

    def reset(self, account: BudgetAccount, now: float) -> float:
        """Return the seconds until nothing that is booked now counts any more; 0 where nothing is."""
        self.used(account, now)
        newest = max((slot for slot, booked in self._slots(account) if booked), default=None)
        return 0.0 if newest is None else account.window.leaves_at(newest) - self._at(account.window, now)

    def book(self, account: BudgetAccount, amount: int, now: float) -> int:
        """Book `amount`, whether it fits or not; return the slot for `give_back`."""
        self._sweep(now)
        found = self._known(account, now)
        if found is None:
            found = self._accounts[account.key] = _Account(account)
        found.account = account
        slot = account.window.slot(self._at(account.window, now))
        if found.own:
            slot = max(slot, next(reversed(found.own)))  # the wall clock may have been set back
        found.own[slot] = found.own.get(slot, 0) + amount
        self._spend(found, amount)
        return slot

    def give_back(self, account: BudgetAccount, slot: int, amount: int, now: float) -> None:
        """Take back `amount` of what was booked in `slot`; nothing changes if the slot has left."""
        found = self._known(account, now)
        if found is not None and slot in found.own:
            found.own[slot] -= amount
            self._spend(found, -amount)

    def close(self, key: str) -> None:
        if self._accounts.pop(key, None) is not None and self._is_shared:
            self._closed[key] = None

    def take_closed(self) -> list[str]:
        """Return the accounts that have closed, whose entries are to be removed from the ledger; each once."""
        closed, self._closed = [key for key in self._closed if key not in self._accounts], {}
        return closed

    def exhausted(self, now: float) -> dict[QuotaAccount, float]:
        """Return the accounts of which nothing is left, with the seconds until something leaves the window."""
        return {
            QuotaAccount(key, found.account.limit): self.wait(found.account, 1, now)
            for key, found in list(self._accounts.items())
            if self.used(found.account, now) >= found.account.limit
        }

    def request(self, account: BudgetAccount, need: int, now: float) -> BudgetRequest:
        """Return the request for a lease of `need`; the current one stays if the request is lost."""
        found = self._known(account, now)
        if found is None:
            found = self._accounts[account.key] = _Account(account)
        return self._request(found, max(0, self._lease(found, now)), need, now)

    def give_all_back(self, key: str, now: float) -> BudgetRequest | None:
        """Return the report by which the lease of an account ends, which others need; None where there is none."""
        found = self._accounts.get(key)
        if found is None or self._lease(found, now) <= 0:
            return None
        found.lease = 0
        return self._request(found, 0, 0, now)

    def take_due(self, now: float) -> list[BudgetRequest]:
        """Return the reports of accounts that booked beyond their lease, or hold far more than they were granted."""
        due, self._due = [self._accounts[key] for key in self._due if key in self._accounts], {}
        for found in due:
            found.lease = min(found.lease, found.granted)
        return [self._request(found, max(0, self._lease(found, now)), 0, now) for found in due]

    def farewell(self, now: float) -> list[BudgetRequest]:
        """Return the reports by which all leases end."""
        return [report for key in list(self._accounts) if (report := self.give_all_back(key, now)) is not None]

    def everything(self, now: float) -> Iterator[tuple[BudgetRequest, dict[str, str]]]:
        """Yield for each account a report and the entries of others: for a ledger that has lost its data."""
        for found in list(self._accounts.values()):
            yield self._request(found, max(0, self._lease(found, now)), 0, now), found.peers

    def answered(self, request: BudgetRequest, reply: BudgetReply, now: float) -> None:
        """Apply the ledger's reply to a request; those about one account come in their order."""
        found = self._accounts.get(request.account.key)
        if found is None:
            return
        found.lease = reply.granted - (found.spent - request.spent)
        found.granted, found.at, found.peers = reply.granted, request.entry.at, dict(reply.others)
        others: dict[int, int] = {}
        for text in reply.others.values():
            for slot, amount in entry_of(text).amounts(request.first).items():
                others[slot] = others.get(slot, 0) + amount
        found.others, found.others_total = dict(sorted(others.items())), sum(others.values())
        if not request.need:
            return
        found.refusals = found.refusals + 1 if reply.granted < request.need else 0
        if found.refusals:
            found.refused = request.need
            found.refused_until = now + min(SHORTEST_PATIENCE * 2 ** (found.refusals - 1), LONGEST_PATIENCE)
        else:
            found.refused_until = -math.inf

    def unreachable(self, account: BudgetAccount, now: float) -> None:
        """Request no more for a while: the ledger does not answer."""
        found = self._accounts.setdefault(account.key, _Account(account))
        found.refused, found.refused_until = 0, now + LONGEST_PATIENCE / 2

    def is_cut_off(self, account: BudgetAccount, now: float) -> bool:
        """Return whether the ledger did not answer the last request, and the next one is not due yet."""
        found = self._accounts.get(account.key)
        return found is not None and not found.refused and now < found.refused_until

    def check_invariants(self) -> None:
        for key, found in self._accounts.items():
            assert all(amount >= 0 for amount in found.own.values()), f"{key}: {found.own}"
            for slots, total in ((found.own, found.own_total), (found.others, found.others_total)):
                assert list(slots) == sorted(slots), f"{key}: slots out of order"
                assert total == sum(slots.values()), f"{key}: {total} of {slots}"

    def _at(self, window: BudgetWindow, now: float) -> float:
        return now + (self._unix_offset if window.is_calendar else self._started or 0.0)

    def _known(self, account: BudgetAccount, now: float) -> _Account | None:
        """Return the account without what has left its window."""
        found = self._accounts.get(account.key)
        if found is None:
            return None
        first = account.window.first(self._at(account.window, now))
        while found.own and (slot := next(iter(found.own))) < first:
            found.own_total -= found.own.pop(slot)
        while found.others and (slot := next(iter(found.others))) < first:
            found.others_total -= found.others.pop(slot)
        return found

    def _slots(self, account: BudgetAccount) -> list[tuple[int, int]]:
        found = self._accounts.get(account.key)
        return sorted([*found.own.items(), *found.others.items()]) if found is not None else []

    def _lease(self, found: _Account, now: float) -> int:
        """Return what may be booked; others count a lease for one window after its request."""
        window = found.account.window
        at = self._at(window, now)
        is_valid = found.at == window.slot(at) or found.at > window.first(at)
        return found.lease if is_valid else min(0, found.lease)

    def _spend(self, found: _Account, amount: int) -> None:
        found.spent += amount
        found.own_total += amount
        if self._is_shared:
            found.lease -= amount
            if found.lease < 0 or found.lease > 2 * found.granted:
                self._due[found.account.key] = None

    def _request(self, found: _Account, held: int, need: int, now: float) -> BudgetRequest:
        window = found.account.window
        at = self._at(window, now)
        slot, first = window.slot(at), window.first(at)
        found.version = max(found.version + 1, int(at * 1000))
        slots = {each: amount for each, amount in found.own.items() if each >= first}
        return BudgetRequest(found.account, first, BudgetEntry(found.version, slot, held, slots), need, found.spent)

    def _sweep(self, now: float) -> None:
        for key in list(islice(self._accounts, SWEPT)):
            found = self._accounts.pop(key)
            self._accounts[key] = found
            self._known(found.account, now)
            window = found.account.window
            if not (found.own or found.others) and found.at < window.first(self._at(window, now)):
                del self._accounts[key]
