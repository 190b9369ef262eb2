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
        if balance > 0:
            return balance  # a round adds nothing
        return balance + min(group.rounds - self._paid, group.rounds_needed(balance)) * group.quantum

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

    Members with waiting requests are ranked: in credit by the best key below them, in debt by the round that gives them
    credit. A member in credit whose waiting requests are all held is in neither order.
    """

    __slots__ = ("_debt_until", "_held", "_kept", "barriers", "in_credit", "in_debt", "parent", "quantum", "rounds")

    def __init__(self, quantum: int, kept: Sequence[Accounts], parent: DeficitAccount | None = None) -> None:
        self.quantum = quantum
        self.parent = parent
        self.rounds = 0
        self.in_credit = ClientPriorityQueue()
        self.in_debt = ClientPriorityQueue()
        self.barriers: dict[str, None] = {}  # members below which a barrier was raised since the last round
        self._kept = kept  # the accounts of this group's level, and of each level below
        self._held: dict[str, None] = {}
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
        since counts for all, so that nobody gains by being forgotten."""
        return min(0, self.rounds * self.quantum - self._debt_until)

    def rounds_needed(self, balance: int) -> int:
        """Return n_i, the number of rounds after which `balance`, which is not positive, is positive."""
        return -balance // self.quantum + 1

    def rank(self, account: DeficitAccount) -> None:
        """Put a member into the place that its balance and its best request give it."""
        name = account.name
        if not account.waiting:
            self._withdraw(name)
        elif (balance := account.balance) <= 0:
            self.in_credit.discard(name)
            self._held.pop(name, None)
            self.in_debt.put(name, (self.rounds + self.rounds_needed(balance),))
        elif (best := account.best()) is None:
            self._withdraw(name)
            self._held[name] = None
        else:
            self.in_debt.discard(name)
            self._held.pop(name, None)
            self.in_credit.put(name, best)

    def _withdraw(self, name: str) -> None:
        self.in_credit.discard(name)
        self.in_debt.discard(name)
        self._held.pop(name, None)

    def best(self) -> tuple[int, ...] | None:
        """Return the least key of a member in credit; DRY if waiting members are all in debt, None if none can go."""
        if (key := self.in_credit.least_key()) is not None:
            return key
        return DRY if self.is_dry else None

    @property
    def is_dry(self) -> bool:
        """Whether members wait and none of them has credit (CHECKREFILL)."""
        return not self._held and self.in_credit.least_key() is None and self.in_debt.least_key() is not None

    def refill(self) -> None:
        """Apply lines 3-8 until a waiting member has credit: as many rounds as the smallest debt needs."""
        key = self.in_debt.least_key()
        if key is None:
            return
        self.barriers.clear()
        self.rounds = key[0]
        while (name := self.in_debt.least()) is not None and (key := self.in_debt.least_key()) is not None:
            if key[0] > self.rounds:
                break
            self.rank(self._kept[0][self, name])

    def check_rank(self, account: DeficitAccount) -> None:
        """Raise AssertionError when a member that waits is not ranked as its balance says."""
        places = account.name in self.in_credit, account.name in self.in_debt, account.name in self._held
        waits, in_credit = account.waiting > 0, account.balance > 0
        assert places == (waits and in_credit, waits and not in_credit, False), f"{account.name}: in {places}"


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

        Groups on the way in which nobody that waits has credit are refilled first (CHECKREFILL).
        """
        group = self.root
        while True:
            name = group.in_credit.least()
            if name is not None:
                account = self._account(group, name)
                if account.members is None:
                    return account
                group = account.members
            elif group.is_dry:
                group.refill()
                for above in group.parent.path if group.parent is not None else ():
                    above.group.rank(above)
                group = self.root
            else:
                return None

    def _account(self, group: DeficitGroup, name: str) -> DeficitAccount:
        account = group.get(name)
        assert account is not None, f"{name} is ranked without an account"
        return account

    def check_invariants(self, most: int) -> None:
        """Raise AssertionError when a balance exceeds `most`, a count is wrong or a member has a wrong rank."""
        for kept in self._kept:
            kept.check_invariants()
            for account in kept.values():
                assert account.balance <= most, f"{account.name}: balance {account.balance} above {most}"
                account.group.check_rank(account)
