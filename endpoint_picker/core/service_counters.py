"""Counters of service, one for each account, that several pickers keep in common.

A picker changes its own copy at once. From time to time it sends what it has changed since, and is told the counters
that any picker has changed. In between it lacks what the others have changed since their last exchange, or since its
own; it lacks nothing else (docs/envoy.md, "A second picker").

A counter changes by charges, and by VTC's lifts to a floor. Both, and all sequences of them, are of the form
max(counter, floor) + added, so what happens to an account between two exchanges is one pair of numbers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from serving.bounded_client_map import MOST_IDLE, BoundedClientMap

LEAST = -(1 << 62)  # below every counter: a floor that lifts nothing


class CounterChange(NamedTuple):
    """A change of a counter, in micro-units: it becomes max(counter, floor) + added."""

    floor: int = LEAST
    added: int = 0

    def applied(self, counter: int) -> int:
        """Return what becomes of `counter`."""
        return max(counter, self.floor) + self.added

    def then(self, later: "CounterChange") -> "CounterChange":
        """Return the change that this one and a later one are together."""
        return CounterChange(max(self.floor, later.floor - self.added), self.added + later.added)


NONE = CounterChange()


@dataclass(slots=True, eq=False)
class _Counter:
    shared: int = 0  # the counter as this picker was last told it
    sent: CounterChange = NONE  # of which the picker does not know yet whether it has reached the others
    unsent: CounterChange = NONE
    counter: int = 0  # after both


class ServiceCounters:
    """One picker's copy of the counters, in micro-units over the weight. An unknown account's counter is 0.

    At most `most_idle` accounts that are marked as idle are remembered.
    """

    def __init__(self, most_idle: int = MOST_IDLE) -> None:
        self._accounts: BoundedClientMap[str, _Counter] = BoundedClientMap(most_idle)
        self._changed: dict[str, None] = {}  # accounts with unsent changes
        self._sent: dict[str, CounterChange] = {}
        self._moved: dict[str, None] = {}  # accounts that were not idle when their counter changed

    def __getitem__(self, account: str) -> int:
        found = self._accounts.get(account)
        return 0 if found is None else found.counter

    def lift(self, account: str, floor: int) -> None:
        """Raise the counter of `account` to `floor`, if it is less; remember the account until `rest`."""
        found = self._account(account)
        self._accounts.activate(account)
        if found.counter < floor:
            self._change(account, found, CounterChange(floor, 0))

    def charge(self, account: str, micro: int) -> None:
        """Add `micro` to the counter of `account`; a refund is negative."""
        self._change(account, self._account(account), CounterChange(LEAST, micro))

    def rest(self, account: str) -> None:
        """Mark a known account as idle: of too many such, those are forgotten that have been idle the longest."""
        self._accounts.rest(account)
        self._moved.pop(account, None)

    def take_changed(self) -> list[str]:
        """Return the accounts, which are not idle, whose counters have changed since the last call."""
        found, self._moved = list(self._moved), {}
        return found

    def begin(self, most: int) -> Mapping[str, CounterChange]:
        """Return the changes to send now, of at most `most` accounts; those that were not confirmed go first."""
        if not self._sent:
            for name in list(self._changed)[:most]:
                del self._changed[name]
                account = self._accounts.get(name)
                if account is not None:
                    self._sent[name] = account.sent = account.unsent
                    account.unsent = NONE
        return self._sent

    def end(self, counters: Iterable[tuple[str, int]]) -> None:
        """Record that the changes of `begin` are made, after which `counters` are these: at least those accounts'."""
        for name in self._sent:
            if (account := self._accounts.get(name)) is not None:
                account.sent = NONE
        self._sent = {}
        for name, counter in counters:
            account = self._accounts.get(name)
            if account is None:
                account = self._accounts[name] = _Counter()
                self._accounts.rest(name)
            account.shared = counter
            self._set(name, account, account.unsent.applied(counter))

    def restore(self) -> None:
        """Send all counters again, with what was unsent: what the pickers had in common is lost.

        The counters become what they were, with the changes of all pickers, except that changes may count twice that
        were sent and reached other pickers, but were not confirmed, and that a counter below 0 becomes 0: it is told as
        a floor, so that it counts once if several pickers tell it.
        """
        self._sent = {}
        for name, account in self._accounts.items():
            account.unsent = CounterChange(account.shared).then(account.sent).then(account.unsent)
            account.shared, account.sent = 0, NONE
            account.counter = account.unsent.applied(0)
            self._changed[name] = None

    @property
    def active(self) -> list[str]:
        """Return the accounts that are not idle."""
        return [name for name in self._accounts if not self._accounts.is_idle(name)]

    def check_invariants(self) -> None:
        self._accounts.check_invariants()
        for name, account in self._accounts.items():
            expected = account.unsent.applied(account.sent.applied(account.shared))
            assert account.counter == expected, f"{name}: {account.counter}, not {expected}"
            assert account.unsent == NONE or name in self._changed, f"{name}: {account.unsent} is never sent"
            assert account.sent in (NONE, self._sent.get(name)), f"{name}: {account.sent} was not sent"

    def _account(self, name: str) -> _Counter:
        found = self._accounts.get(name)
        if found is None:
            found = self._accounts[name] = _Counter()
        return found

    def _change(self, name: str, account: _Counter, change: CounterChange) -> None:
        account.unsent = account.unsent.then(change)
        self._set(name, account, change.applied(account.counter))
        self._changed[name] = None

    def _set(self, name: str, account: _Counter, counter: int) -> None:
        if counter != account.counter and not self._accounts.is_idle(name):
            self._moved[name] = None
        account.counter = counter
