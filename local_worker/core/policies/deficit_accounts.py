"""Deficit accounts in a hierarchy (DLPM Algorithm 1, lines 3-8, for each group of siblings), refilled lazily: a refill
takes O(1) for any number of accounts.

A path of names leads to a leaf, which has requests. Each account on the path belongs to the group of its siblings, and
each group has rounds of its own. With paths of one name there is one group, as in the paper.
"""

from collections.abc import Sequence

from local_worker.core.policies.client_priority_queue import ClientPriorityQueue
from local_worker.core.policies.prefix_match_queue import PrefixMatchQueue
from local_worker.core.request import Request
from serving.bounded_client_map import MOST_IDLE, BoundedClientMap

Accounts = BoundedClientMap[tuple["DeficitGroup", str], "DeficitAccount"]

# Before the keys of all requests: the next step of the order has to refill the group.
DRY: tuple[int, ...] = ()
# The keys of members in debt begin with DEBT and come after those of all requests: these are less than DEBTS.
DEBT = 1
DEBTS = (DEBT,)


class DeficitAccount:
    """The account of a tenant, a user or an interaction: balance, numbers of requests, and what is below it."""

    __slots__ = ("_balance", "_paid", "group", "members", "name", "path", "queue", "running", "waiting")

    def __init__(self, group: "DeficitGroup", name: str, balance: int) -> None:
        self.group = group
        self.name = name
        # This account and those above it, the highest last.
        self.path: tuple[DeficitAccount, ...] = (self, *(group.parent.path if group.parent is not None else ()))
        self.members: DeficitGroup | None = None  # the accounts below; None: a leaf
        self.queue: PrefixMatchQueue | None = None  # the waiting requests of a leaf; None while there are none
        self.waiting = 0  # number of waiting requests of all leaves below
        self.running = 0  # number of running ones
        self._balance = balance  # after round `_paid` of the group
        self._paid = group.rounds

    @property
    def balance(self) -> int:
        """The deficit counter q_i in micro-units, with all rounds of the group."""
        group, balance = self.group, self._balance
        if balance > 0 or self._paid == group.rounds:
            return balance  # a round adds nothing to credit
        return balance + min(group.rounds - self._paid, group.rounds_needed(balance)) * group.quantum

    @property
    def credit_round(self) -> int:
        """The round of the group that gives the account credit; one that has passed if it has some."""
        return self._paid + -self._balance // self.group.quantum + 1

    def charge(self, micro: int) -> int:
        """Subtract `micro` micro-units from the balance (lines 22 and 27), and return what is left.

        A negative number gives back a part of an earlier charge.
        """
        rounds = self.group.rounds
        left = self._balance = (self._balance if self._paid == rounds else self.balance) - micro
        self._paid = rounds
        return left

    @property
    def may_raise_barrier(self) -> bool:
        """Whether all accounts on the path have credit and had no barrier since their group's last round.

        Otherwise a client could drain the batch by submitting and cancelling requests.
        """
        return all(account.balance > 0 and account.name not in account.group.barriers for account in self.path)

    def raise_barrier(self) -> None:
        """Record that a request of this leaf is a barrier."""
        for account in self.path:
            account.group.barriers[account.name] = None

    def rank(self) -> None:
        """Rank the accounts on the path by their balances and their best requests."""
        for account in self.path:
            account.group.rank(account)

    def rank_waiting(self) -> None:
        """Rank those accounts on the path that have waiting requests: the others are not ranked anyway."""
        for account in self.path:
            if account.waiting:
                account.group.rank(account)

    def best(self) -> tuple[int, ...] | None:
        """Return the least key of the requests below that may be admitted; None when all of them are held."""
        if self.members is not None:
            return self.members.best()
        return self.queue.first_key() if self.queue is not None else None


def weight_at(request: Request, account: DeficitAccount) -> int:
    """Return the weight of `request` at the level of `account`, in thousandths."""
    return request.weight if account.group.parent is None else request.user_weight


class DeficitGroup:
    """This class keeps the accounts of siblings. A round adds one quantum to each balance that is not positive.

    Members with waiting requests are ranked: first those in credit by the best key below them, then those in debt by
    the round that gives them credit. A member in credit whose waiting requests are all held is not ranked.
    """

    __slots__ = ("_debt_until", "_kept", "_ranks", "_waiting", "barriers", "parent", "quantum", "rounds")

    def __init__(self, quantum: int, kept: Sequence[Accounts], parent: DeficitAccount | None = None) -> None:
        self.quantum = quantum
        self.parent = parent
        self.rounds = 0
        self.barriers: dict[str, None] = {}  # members below which a barrier was raised since the last round
        self._kept = kept  # the accounts of this group's level, and of each level below
        self._waiting: dict[str, DeficitAccount] = {}  # members with waiting requests
        self._ranks = ClientPriorityQueue()
        self._debt_until = 0  # value of rounds * quantum at which the largest forgotten debt is paid

    def get(self, name: str) -> DeficitAccount | None:
        """Return the member's account; None if it has none."""
        return self._kept[0].get((self, name))

    def open(self, name: str) -> DeficitAccount:
        """Return the account of a member that has requests from now on; open one if there is none."""
        account = self.get(name)
        if account is None:
            account = self._kept[0][self, name] = DeficitAccount(self, name, self.newcomers_balance)
            if len(self._kept) > 1:
                account.members = DeficitGroup(self.quantum, self._kept[1:], account)
        self._kept[0].activate((self, name))
        return account

    def close(self, account: DeficitAccount) -> None:
        """Record that a member has no requests; forget the account of its level that is idle longest if there are too
        many."""
        forgotten = self._kept[0].rest((self, account.name))
        if forgotten is not None:
            forgotten.group._forget(forgotten)

    def _forget(self, account: DeficitAccount) -> None:
        self._debt_until = max(self._debt_until, self.rounds * self.quantum - account.balance)

    @property
    def newcomers_balance(self) -> int:
        """The balance of a member without an account: credit is lost, and the largest forgotten debt less the rounds
        since counts for all, so that no client gains by being forgotten."""
        return min(0, self.rounds * self.quantum - self._debt_until)

    def rounds_needed(self, balance: int) -> int:
        """Return n_i, the number of rounds after which `balance` is positive; 0 or less if it is."""
        return -balance // self.quantum + 1

    def rank(self, account: DeficitAccount) -> None:
        """Put a member into the place that its balance and its best request give it."""
        name = account.name
        if not account.waiting:
            self._waiting.pop(name, None)
            self._ranks.discard(name)
            return
        self._waiting[name] = account
        if (credit_round := account.credit_round) > self.rounds:
            self._ranks.put(name, (DEBT, credit_round))
        elif (best := account.best()) is None:
            self._ranks.discard(name)
        else:
            self._ranks.put(name, best)

    def best(self) -> tuple[int, ...] | None:
        """Return the least key of a member in credit; DRY if waiting members are all in debt, None if none can go."""
        first = self._ranks.first()
        if first is not None and first[0] < DEBTS:
            return first[0]
        return DRY if self.is_dry else None

    def first(self) -> DeficitAccount | None:
        """Return the member in credit with the least key; None if none can go."""
        first = self._ranks.first()
        return self._waiting[first[1]] if first is not None and first[0] < DEBTS else None

    @property
    def is_dry(self) -> bool:
        """Whether members wait and all of them are in debt (CHECKREFILL); one whose requests are all held has credit,
        and no rank."""
        first = self._ranks.first()
        return first is not None and first[0] > DEBTS and len(self._ranks) == len(self._waiting)

    def refill(self) -> None:
        """Apply lines 3-8 until a waiting member has credit: as many rounds as the smallest debt needs.

        The group must be dry. Dry groups below members that have credit now are refilled, too: the order would lead to
        each of them before any request.
        """
        self.barriers.clear()
        (_, self.rounds), names = self._ranks.take_least()
        for name in names:
            account = self._waiting[name]
            if account.members is not None and account.members.is_dry:
                account.members.refill()
            self.rank(account)

    def check_rank(self, account: DeficitAccount) -> None:
        """Raise AssertionError unless a member is ranked as its balance and its best request say."""
        key = account.best() if account.waiting else None
        if account.waiting and (balance := account.balance) <= 0:
            key = DEBT, self.rounds + self.rounds_needed(balance)
        assert (account.name in self._waiting) == (account.waiting > 0), f"{account.name}: {account.waiting} wait"
        found = self._ranks.key(account.name)
        assert found == key, f"{account.name}: ranked by {found} in place of {key}"


class DeficitAccounts:
    """This class keeps the accounts of all levels.

    Of the idle accounts of a level only the `most_idle` that became idle last are kept. The accounts below a forgotten
    one are forgotten with it: all of them were idle, and return with equal balances.
    """

    def __init__(self, quantum: int, levels: int = 1, most_idle: int = MOST_IDLE) -> None:
        self.quantum = quantum
        self._kept: list[Accounts] = [BoundedClientMap(most_idle) for _ in range(levels)]
        self.root = DeficitGroup(quantum, self._kept)

    def __len__(self) -> int:
        return sum(map(len, self._kept))

    def open(self, path: Sequence[str]) -> DeficitAccount:
        """Return the leaf at the end of `path`; open the accounts on the path that do not exist."""
        account = self.root.open(path[0])
        for name in path[1:]:
            assert account.members is not None, f"{account.name} is a leaf"
            account = account.members.open(name)
        return account

    def balance(self, path: Sequence[str]) -> int:
        """Return the balance at the end of `path` in micro-units, also where there is no account."""
        group = self.root
        for name in path[:-1]:
            account = group.get(name)
            if account is None or account.members is None:
                return 0
            group = account.members
        account = group.get(path[-1])
        return group.newcomers_balance if account is None else account.balance

    def next_leaf(self) -> DeficitAccount | None:
        """Return the leaf with the best request among those with credit on the whole path; None if there is none.

        Groups on the way in which no waiting client has credit are refilled first (CHECKREFILL).
        """
        group = self.root
        while True:
            if (account := group.first()) is not None:
                if account.members is None:
                    return account
                group = account.members
            elif group.is_dry:
                group.refill()
                if group.parent is not None:
                    group.parent.rank()
                group = self.root
            else:
                return None

    def check_invariants(self, most: int) -> None:
        """Raise AssertionError when a balance exceeds `most`, a count is wrong or a member has a wrong rank."""
        for kept in self._kept:
            kept.check_invariants()
            for account in kept.values():
                assert account.balance <= most, f"{account.name}: balance {account.balance} above {most}"
                account.group.check_rank(account)
