"""VTC whose unit is the slice: the next part of a prompt, or one output token. Unit of fairness: as VTC.

The account with the least counter has the turn, and a slice ends with the block in which its counter passes the least
of the other hungry ones. Who has the least counter has credit. An account whose counter is P above that gives way: what
an account in slices of DLPM may owe, one of VTC may be ahead. Hence all counters lie within U' of the least hungry one,
and the bound is 2 U': see docs/fairness.md, "Fair slices".
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from local_worker.core.accounts.account import Account, Siblings
from local_worker.core.accounts.tree import FLAT
from local_worker.core.policies.dlpm import DeficitOrder
from local_worker.core.policies.prefix_match_queue import RankKey
from local_worker.core.policies.protocol import QueuePolicyConfig
from local_worker.core.policies.sliced_dlpm import SliceBounds, SlicedDlpm
from local_worker.core.request import Request
from serving.core.priority_queue import PriorityQueue
from serving.cost import WEIGHT_ONE


class CounterBounds(SliceBounds):
    """The bounds of VTC over slices: counters of hungry accounts differ by at most U'."""

    def _gap(self) -> int:
        """The bound `2 U'` on the gap."""
        return 2 * self.most_debt


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


class SlicedVtc(SlicedDlpm):
    """VTC over slices, where `balance` is the counter c_i; see Vtc and QueuePolicy."""

    balance_range_micro = None  # counters grow without limit

    def __init__(self, config: QueuePolicyConfig) -> None:
        super().__init__(replace(config, levels=FLAT))
        self._bounds: CounterBounds = CounterBounds(config)
        self._order: CounterOrder = CounterOrder(self.accounts.root)

    def preempted(self, request: Request) -> None:
        self._join(request)
        super().preempted(request)

    def _join(self, request: Request) -> None:
        """Lift the counter of an account that was not hungry (lines 8-13): it earned no credit meanwhile.

        Where nobody is hungry, nobody was wronged by what the others had since: the highest counter is forgotten.
        """
        account, least = request.account, self._order.least
        if account.hungry == 1:
            self._lift(account, account.siblings.most_owed if least is None else least)

    def _lift(self, account: Account, counter: int) -> None:
        if account.balance > -counter:
            account.charge(account.balance + counter)

    def cached(self, digests: Sequence[int]) -> None:
        """Do nothing: the order does not depend on the cache."""

    def _key(self, request: Request, matched: int) -> RankKey:
        return 0, request.arrival

    def has_credit(self, request: Request) -> bool:
        """Return whether no hungry account has a lower counter."""
        return not self.owes(request.account)

    def owes(self, account: Account) -> bool:
        """Return whether a hungry account has a lower counter than `account`."""
        least = self._order.least
        return least is not None and -account.balance > least

    def beyond(self, leaves: Iterable[Account]) -> set[Account]:
        """Return those of `leaves`, which run, that are at least P ahead of the least hungry; none, if there is no P.

        Those that are behind are lifted: they are not hungry.
        """
        least = self._order.least
        if least is None:
            return set()
        for leaf in leaves:
            if not leaf.hungry:
                self._lift(leaf, least)
        return {leaf for leaf in leaves if self._debt and leaf.is_at_most(-least - self._debt)}

    def tokens_until_dry(self, request: Request) -> int:
        """Return the number of prompt tokens after which another hungry account has the least counter; at least 1."""
        other = self._order.least_beside(request.account)
        if other is None:
            return request.due
        behind = (other + request.account.balance) * request.weight
        return max(1, -(-behind // (WEIGHT_ONE * self._charging.most_per_token)))

    def _least(self, request: Request, debt: int) -> int:
        return ((self._order.least or 0) + request.account.balance + debt) * request.weight

    def balance(self, client: str) -> int:
        """Return c_i in micro-units; see QueuePolicy."""
        return -super().balance(client)
