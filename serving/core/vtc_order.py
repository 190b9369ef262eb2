"""VTC's order of the accounts that wait (VTC Algorithm 2): the one that was given the least comes first.

The worker's policy and the endpoint picker both have it; each keeps the counters of its accounts.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from serving.core.priority_queue import PriorityQueue

T = TypeVar("T")


class VtcOrder:
    """Accounts that wait, by counter and then by a number that breaks ties; all operations take O(log n) amortised.

    `counter` returns the counter c_i of an account, which waits or not, in micro-units. The order has to be told of
    each change of a counter.
    """

    def __init__(self, counter: Callable[[str], int]) -> None:
        self._counter = counter
        self._ranks = PriorityQueue()

    def __len__(self) -> int:
        return len(self._ranks)

    def __contains__(self, account: str) -> bool:
        return account in self._ranks

    def lifted(self, account: str, latest: str) -> int:
        """Return the counter of `account`, which does not wait, lifted (lines 8-13): it earned no credit meanwhile.

        It is at least that of the first that waits; where none waits, that of the account `latest`.
        """
        first = self._ranks.least()
        return max(self._counter(account), self._counter(latest if first is None else first))

    def put(self, account: str, tie: int) -> None:
        """Let `account` wait in the place of its counter, before those with an equal one and a larger `tie`; or record
        that one of the two has changed."""
        self._ranks.put(account, (self._counter(account), tie))

    def changed(self, account: str) -> None:
        """Record that the counter of `account` has changed; it waits or not."""
        key = self._ranks.key(account)
        if key is not None:
            self._ranks.put(account, (self._counter(account), key[1]))

    def discard(self, account: str) -> None:
        """Let `account` wait no longer."""
        self._ranks.discard(account)

    def first(self) -> str | None:
        """Return the first account; None if none waits."""
        return self._ranks.least()

    def first_of(self, found: Callable[[str], T | None]) -> T | None:
        """Return the first result of `found` that is not None, for one account after the other in their order.

        Each account for which it is None costs O(log n) more. `found` changes nothing.
        """
        aside: list[tuple[str, tuple[int, ...]]] = []
        result = None
        while result is None and (first := self._ranks.first()) is not None:
            key, account = first
            result = found(account)
            self._ranks.discard(account)
            aside.append((account, key))
        for account, key in aside:
            self._ranks.put(account, key)
        return result

    def check_invariants(self, accounts: Iterable[str]) -> None:
        """Raise AssertionError unless exactly `accounts` wait, each in the place of its counter."""
        waiting = list(accounts)
        assert len(self._ranks) == len(waiting), f"{len(self._ranks)} wait, not {waiting}"
        for account in waiting:
            key = self._ranks.key(account)
            assert key is not None, f"{account} does not wait"
            assert key[0] == self._counter(account), f"{account} waits at {key[0]}, not {self._counter(account)}"
