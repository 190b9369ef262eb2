"""Accounts that wait, in the order of VTC (Algorithm 2): the one that was given the least comes first."""

import heapq
from collections.abc import Callable
from typing import TypeVar

from endpoint_picker.core.service_counters import ServiceCounters

T = TypeVar("T")
SPARE = 16  # entries of earlier counters that are always kept, so that few accounts rarely pay for a new heap


class VtcOrder:
    """Accounts of one level, all tenants or all clients of one tenant; ties go to the one that waits longer.

    An account that has nothing waiting earns no credit and gets no debt: when a request of it comes, its counter is
    lifted to the least of those that wait; if none waits, to the account `latest`, whose counter is the highest at
    which a request was served. All operations take O(log n) amortised.
    """

    def __init__(self, counters: ServiceCounters, latest: str) -> None:
        self._counters = counters
        self._latest = latest
        self._since: dict[str, int] = {}  # by account: the number of accounts that began to wait before it
        self._begun = 0
        # Counters at some earlier time. Most only grow, so that an entry is looked at, and corrected, when it comes
        # first. A counter that falls gets an entry of its own.
        self._heap: list[tuple[int, int, str]] = []

    def __bool__(self) -> bool:
        return bool(self._since)

    def __contains__(self, account: str) -> bool:
        return account in self._since

    def add(self, account: str) -> None:
        """Let `account`, which does not wait, wait behind its equals."""
        first = self._first()
        self._counters.lift(account, self._counters[self._latest if first is None else first])
        self._since[account] = self._begun
        self._begun += 1
        self._push(account)

    def remove(self, account: str) -> None:
        """Let `account`, which waits, wait no longer."""
        del self._since[account]
        self._counters.rest(account)

    def fell(self, account: str) -> None:
        """Record that the counter of `account`, which waits, is less than it was."""
        self._push(account)

    def served(self, account: str) -> None:
        """Record that a request of `account` is served, whether it waited or not."""
        if account not in self._since:
            self._counters.lift(account, self._counters[self._latest])
            self._counters.rest(account)
        self._counters.lift(self._latest, self._counters[account])
        self._counters.rest(self._latest)

    def first(self, found: Callable[[str], T | None]) -> T | None:
        """Return the first result of `found` that is not None, for one account after the other in their order.

        Each account for which it is None costs O(log n) more. `found` changes nothing.
        """
        aside = []
        result = None
        while result is None and (account := self._first()) is not None:
            aside.append(heapq.heappop(self._heap))
            result = found(account)
        for entry in aside:
            heapq.heappush(self._heap, entry)
        return result

    def _first(self) -> str | None:
        """Return the first account; drop and correct what stands before its entry."""
        while self._heap:
            counter, since, account = self._heap[0]
            now = self._counters[account]
            if self._since.get(account) != since or counter > now:
                heapq.heappop(self._heap)
            elif counter < now:
                heapq.heapreplace(self._heap, (now, since, account))
            else:
                return account
        return None

    def _push(self, account: str) -> None:
        if len(self._heap) > 2 * len(self._since) + SPARE:
            self._heap = [(self._counters[each], since, each) for each, since in self._since.items()]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (self._counters[account], self._since[account], account))

    def check_invariants(self) -> None:
        """Raise AssertionError with detail when the state is impossible."""
        for account, since in self._since.items():
            earliest = min(
                (counter for counter, at, each in self._heap if (at, each) == (since, account)), default=None
            )
            assert earliest is not None, f"{account} waits and has no entry"
            assert earliest <= self._counters[account], f"{account} comes too late, at {earliest}"
