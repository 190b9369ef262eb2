"""The order of VTC over slices: the account with the least counter goes first, ties by the earliest request."""

from local_worker.core.accounts.account import Account, Siblings
from local_worker.core.policies.dlpm import DeficitOrder
from serving.core.priority_queue import PriorityQueue


class CounterOrder(DeficitOrder):
    """The accounts of one level, whose counters are the negatives of their balances.

    An account whose requests are all held has no turn, and while it is hungry no account with a higher counter has one.
    """

    def __init__(self, root: Siblings) -> None:
        super().__init__(root)
        self._counters = PriorityQueue()  # names of all hungry accounts

    @property
    def least(self) -> int | None:
        """The least counter of a hungry account in micro-units; None if there is none."""
        first = self._counters.first()
        return None if first is None else first[0][0]

    def least_beside(self, leaf: Account) -> int | None:
        """Return the least counter of a hungry account other than `leaf`, which is hungry; None if there is none."""
        key = self._counters.key(leaf.name)
        assert key is not None, f"{leaf.name} is not hungry"
        self._counters.discard(leaf.name)
        least = self.least
        self._counters.put(leaf.name, key)
        return least

    def rank(self, leaf: Account) -> None:
        """Rank `leaf` by its counter and its earliest request."""
        ranks, counter = leaf.siblings.ranks, -leaf.balance
        if not leaf.hungry:
            self._counters.discard(leaf.name)
            ranks.discard(leaf.name)
            return
        self._counters.put(leaf.name, (counter,))
        if (best := self.queues[leaf].first_key()) is None:
            ranks.discard(leaf.name)
        else:
            ranks.put(leaf.name, (counter, *best))

    def next_leaf(self) -> Account | None:
        """Return the account with the least counter; None while it has no request that may go."""
        first = self._root.ranks.first()
        return None if first is None or first[0][0] != self.least else self._root.members[first[1]]

    def check_rank(self, account: Account) -> None:
        """Raise AssertionError unless an account is ranked by its counter."""
        key = (-account.balance,) if account.hungry else None
        found = self._counters.key(account.name)
        assert found == key, f"{account.name}: ranked by {found} in place of {key}"
