"""The account of a tenant, a user or an interaction, and the group of siblings to which it belongs.

Siblings share what their parent gets, by weight. Deficits are those of DLPM Algorithm 1 (lines 3-8), for each group of
siblings: a round of refills adds one quantum to each balance that is not positive. Rounds are applied when a balance is
read, so that a round takes O(1) for any number of accounts.
"""

from collections import OrderedDict
from collections.abc import Iterator

from serving.core.priority_queue import PriorityQueue

Path = tuple[str, ...]  # the names of an account and of those above it, the highest first


class Account:
    """What is counted for one tenant, user or interaction.

    `service` and `weighted` are what the theorems speak of, and only the ServiceLedger writes them. The balance belongs
    to the policy: charges lower it, so that siblings with a higher balance go first. The two are independent, because
    the ledger is what the policy is checked against. Amounts are in micro-units.
    """

    __slots__ = (
        "_balance",
        "_refilled",
        "droppable",
        "exempt",
        "hungry",
        "is_highest",
        "lineage",
        "members",
        "name",
        "pages",
        "path",
        "running",
        "service",
        "siblings",
        "waiting",
        "weight",
        "weighted",
    )

    def __init__(self, siblings: "Siblings", name: str) -> None:
        parent = siblings.parent
        self.siblings = siblings
        self.name = name  # among its siblings
        self.is_highest = parent is None  # its weight is then that of the request, below the highest level the user's
        self.path: Path = (*(parent.path if parent is not None else ()), name)
        # This account and those above it, the highest last.
        self.lineage: tuple[Account, ...] = (self, *(parent.lineage if parent is not None else ()))
        self.members: Siblings | None = None  # the accounts below; None: a leaf
        self.weight = 0  # of its latest request, in thousandths; 0 while it has no requests
        self.waiting = 0  # number of waiting requests of all leaves below
        self.droppable = 0  # how many of them may be dropped for others
        self.exempt = 0  # how many of them are never dropped for others
        self.hungry = 0  # number of requests below that wait or have a part of their prompt that no step was given
        self.running = 0  # number of running requests of all leaves below
        self.pages = 0  # number of pages of the KV cache that these hold and did not find cached
        self.service = 0  # the cost of the tokens that were computed and generated
        self.weighted = 0  # the service of the theorems, over the weights at this level
        self._balance = siblings.newcomers_balance  # after round `_refilled` of the siblings
        self._refilled = siblings.rounds

    @property
    def requests(self) -> int:
        """The number of waiting and running requests."""
        return self.waiting + self.running

    def and_below(self) -> Iterator["Account"]:
        yield self
        if self.members is not None:
            yield from self.members.and_below()

    @property
    def balance(self) -> int:
        """The balance with all rounds of the siblings: DLPM's deficit counter q_i, or the negative of VTC's c_i."""
        siblings, balance = self.siblings, self._balance
        if balance > 0 or self._refilled == siblings.rounds:
            return balance  # a round adds nothing to credit
        needed = -balance // siblings.quantum + 1  # n_i, as in `rounds_needed`
        return balance + min(siblings.rounds - self._refilled, needed) * siblings.quantum

    def is_at_most(self, micro: int) -> bool:
        """Return whether the balance is `micro` or less."""
        return self._balance <= micro and self.balance <= micro  # rounds only raise a balance

    @property
    def credit_round(self) -> int:
        """The round of the siblings that gives the account credit; one that has passed if it has some."""
        return self._refilled + -self._balance // self.siblings.quantum + 1

    def charge(self, micro: int) -> int:
        """Subtract `micro` from the balance and return what is left; a negative number gives a charge back."""
        siblings = self.siblings
        rounds = siblings.rounds
        left = self._balance = (self._balance if self._refilled == rounds else self.balance) - micro
        self._refilled = rounds
        if left <= 0 and (until := rounds * siblings.quantum - left) > siblings.debt_until:
            siblings.debt_until = until
        return left

    def share(self, pages: int) -> int:
        """Return the share of `pages` of an account that has requests, by the weights of all siblings that have."""
        for account in reversed(self.lineage):
            pages = pages * account.weight // account.siblings.weights
        return pages

    def beyond_share(self, pages: int, more: int) -> int:
        """Return by how many pages an account of the lineage would exceed its share of `pages` if it held `more` more.

        Of the accounts the one that exceeds its share by most counts. The result is 0 if none does. An account that is
        alone, as are those above it, never exceeds its share.
        """
        most, is_alone = 0, True
        for account in reversed(self.lineage):
            weight, weights = account.weight, account.siblings.weights
            pages = pages * weight // weights
            is_alone &= weight == weights
            if not is_alone:
                most = max(most, account.pages + more - pages)
        return most


class Siblings:
    """The accounts directly below one account, or the highest ones; `quantum` is what a round adds to a balance."""

    __slots__ = (
        "_by_queue",
        "_forgotten_until",
        "debt_until",
        "hungry",
        "idle",
        "longest",
        "members",
        "parent",
        "quantum",
        "ranks",
        "rounds",
        "weights",
    )

    def __init__(self, quantum: int, idle: OrderedDict[Account, None], parent: Account | None = None) -> None:
        self.quantum = quantum
        self.idle = idle  # accounts of this level without requests; the one that became idle first comes first
        self.parent = parent
        self.members: dict[str, Account] = {}
        self.hungry = 0  # number of members that are hungry
        self.weights = 0  # sum of the weights of the members that have requests
        self.ranks = PriorityQueue()  # names of hungry members, in the order of the policy
        self.rounds = 0  # number of rounds of refills so far
        self.debt_until = 0  # value of rounds * quantum at which every debt is paid
        self._forgotten_until = 0  # value of rounds * quantum at which the largest forgotten debt is paid
        self.longest = 0  # the largest number of droppable requests of a member
        self._by_queue: dict[int, dict[Account, None]] = {}  # that number -> members, in the order of reaching it

    @property
    def newcomers_balance(self) -> int:
        """The balance of a member without an account: credit is lost, and the largest forgotten debt less the rounds
        since counts for all, so that no client gains by being forgotten."""
        return min(0, self.rounds * self.quantum - self._forgotten_until)

    @property
    def most_owed(self) -> int:
        """What the member deepest in debt owes at most, those that are forgotten included."""
        return max(self.debt_until, self._forgotten_until) - self.rounds * self.quantum

    def rounds_needed(self, balance: int) -> int:
        """Return n_i, the number of rounds after which `balance` is positive; 0 or less if it is."""
        return -balance // self.quantum + 1

    def forgive(self) -> None:
        """Give every member in debt rounds until it has credit: nobody was hungry, so nobody was wronged by the debts.

        O(1) for any number of members.
        """
        self.rounds = max(self.rounds, max(self.debt_until, self._forgotten_until) // self.quantum + 1)

    def and_below(self) -> Iterator[Account]:
        """Iterate over the members and all below them."""
        for account in self.members.values():
            yield from account.and_below()

    def weigh(self, account: Account, weight: int) -> None:
        """Change the weight of a member that has requests; to 0 when it has none any more."""
        self.weights += weight - account.weight
        account.weight = weight

    def forget(self, account: Account) -> None:
        """Remove a member without requests, with all below it: these are idle too, and return with equal balances."""
        self._forgotten_until = max(self._forgotten_until, self.rounds * self.quantum - account.balance)
        del self.members[account.name]
        for forgotten in account.and_below():
            del forgotten.siblings.idle[forgotten]

    def lengthen(self, account: Account, by: int) -> None:
        """Change a member's number of droppable requests by 1 or -1."""
        old = account.droppable
        if old:
            queues = self._by_queue[old]
            del queues[account]
            if not queues:
                del self._by_queue[old]
        new = account.droppable = old + by
        if new:
            self._by_queue.setdefault(new, {})[account] = None
        if new > self.longest or self.longest not in self._by_queue:
            self.longest = new

    def with_longest_queue(self) -> Account:
        """Return the member that has had the greatest number of droppable requests for longest."""
        return next(iter(self._by_queue[self.longest]))

    def check_invariants(self) -> None:
        """Raise AssertionError unless sums and the index by length agree with the members."""
        here = [account for account in self.members.values() if account.requests]
        assert self.weights == sum(account.weight for account in here), f"{self.weights} in all, of {here}"
        hungry = sum(account.hungry > 0 for account in here)
        assert self.hungry == hungry, f"{self.hungry} members are hungry, here are {hungry}"
        indexed = {account: length for length, accounts in self._by_queue.items() for account in accounts}
        lengths = {account: account.droppable for account in here if account.droppable}
        assert indexed == lengths, f"queues {lengths}, indexed {indexed}"
        assert self.longest == max(lengths.values(), default=0), f"longest {self.longest} of {lengths}"
