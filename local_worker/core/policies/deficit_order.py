"""The order in which DLPM serves accounts: those with credit by the best request below them, at each level.

Among siblings with waiting requests, those in credit come first, by the best key below them, and then those in debt, by
the round that gives them credit. An account in credit whose waiting requests are all held is not ranked.
"""

from local_worker.core.accounts.account import Account, Siblings
from local_worker.core.policies.prefix_match_queue import PrefixMatchQueue

# Before the keys of all requests: the next step of the order has to refill the siblings.
DRY: tuple[int, ...] = ()
# The keys of accounts in debt begin with DEBT and come after those of all requests: these are less than DEBTS.
DEBT = 1
DEBTS = (DEBT,)


class DeficitOrder:
    """The ranks of all siblings below `root`, and the queues of the leaves."""

    def __init__(self, root: Siblings) -> None:
        self.queues: dict[Account, PrefixMatchQueue] = {}  # leaf -> its waiting requests
        self._root = root
        self._barriers: dict[Siblings, dict[str, None]] = {}  # names below which one was raised since the last round

    def rank(self, leaf: Account) -> None:
        """Rank `leaf` and those above it by their balances and their best requests."""
        for account in leaf.lineage:
            siblings = account.siblings
            key = self._key(account)
            if key is None:
                siblings.ranks.discard(account.name)
            else:
                siblings.ranks.put(account.name, key)

    def rank_waiting(self, leaf: Account) -> None:
        """Rank those of the lineage that have waiting requests: the others are not ranked anyway."""
        if leaf.lineage[-1].waiting:
            self.rank(leaf)

    def _key(self, account: Account) -> tuple[int, ...] | None:
        if not account.waiting:
            return None
        credit_round = account.credit_round
        return (DEBT, credit_round) if credit_round > account.siblings.rounds else self._best(account)

    def _best(self, account: Account) -> tuple[int, ...] | None:
        """Return the least key of the requests below that may be admitted; DRY if a refill comes before them; None if
        none can go."""
        members = account.members
        if members is None:
            return self.queues[account].first_key()
        first = members.ranks.first()
        if first is not None and first[0] < DEBTS:
            return first[0]
        return DRY if _is_dry(members) else None

    def next_leaf(self) -> Account | None:
        """Return the leaf with the best request among those with credit on the whole path; None if there is none.

        Siblings on the way of whom none that waits has credit are refilled first (CHECKREFILL).
        """
        siblings = self._root
        while True:
            first = siblings.ranks.first()
            if first is not None and first[0] < DEBTS:
                account = siblings.members[first[1]]
                if account.members is None:
                    return account
                siblings = account.members
            elif _is_dry(siblings):
                self._refill(siblings)
                if siblings.parent is not None:
                    self.rank(siblings.parent)
                siblings = self._root
            else:
                return None

    def _refill(self, siblings: Siblings) -> None:
        """Apply lines 3-8 until a waiting account has credit: as many rounds as the smallest debt needs.

        The siblings must be dry. Dry ones below those that have credit now are refilled, too: the order would lead to
        each of them before any request.
        """
        self._barriers.pop(siblings, None)
        (_, siblings.rounds), names = siblings.ranks.take_least()
        for name in names:
            account = siblings.members[name]
            if account.members is not None and _is_dry(account.members):
                self._refill(account.members)
            key = self._key(account)
            if key is not None:
                siblings.ranks.put(name, key)

    def may_raise_barrier(self, leaf: Account) -> bool:
        """Return whether all of the lineage have credit and had no barrier since their siblings' last round.

        Otherwise a client could drain the batch by submitting and cancelling requests.
        """
        return all(each.balance > 0 and each.name not in self._barriers.get(each.siblings, ()) for each in leaf.lineage)

    def raise_barrier(self, leaf: Account) -> None:
        """Record that a request of `leaf` is a barrier."""
        for account in leaf.lineage:
            self._barriers.setdefault(account.siblings, {})[account.name] = None

    def check_rank(self, account: Account) -> None:
        """Raise AssertionError unless an account is ranked as its balance and its best request say."""
        siblings, key = account.siblings, self._best(account) if account.waiting else None
        if account.waiting and (balance := account.balance) <= 0:
            key = DEBT, siblings.rounds + siblings.rounds_needed(balance)
        found = siblings.ranks.key(account.name)
        assert found == key, f"{account.name}: ranked by {found} in place of {key}"


def _is_dry(siblings: Siblings) -> bool:
    """Return whether siblings wait and all of them are in debt (CHECKREFILL); one whose requests are all held has
    credit, and no rank."""
    first = siblings.ranks.first()
    return first is not None and first[0] > DEBTS and len(siblings.ranks) == siblings.waiting
