"""The tree of accounts, tenants above users above interactions, and the numbers of requests of each account.

One tree serves the policy, the service ledger, the shares of the KV cache and the drop from the longest queue. It is
the first observer of a request's events: the others find the request's `account`, with numbers that are up to date.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from local_worker.core.accounts.account import Account, Path, Siblings
from local_worker.core.request import Request
from serving.bounded_client_map import MOST_IDLE
from serving.names import tenant_of


class FairnessLevel(StrEnum):
    """A level at which siblings share the service of what is above them."""

    TENANT = "tenant"
    USER = "user"
    INTERACTION = "interaction"


@dataclass(frozen=True, slots=True)
class FairnessLevels:
    """The levels of a worker, the highest first.

    A client is named `tenant` or `tenant/user`. Without the level of tenants all users are siblings, each with its
    tenant's weight. Calls of a user without an interaction count as one interaction.
    """

    levels: tuple[FairnessLevel, ...] = (FairnessLevel.USER,)

    @classmethod
    def parse(cls, text: str) -> "FairnessLevels":
        """Return the levels that `text` names, separated by commas.

        Raise ValueError unless they are levels in order, and the first of them is the tenant or the user: callers may
        invent interactions.
        """
        known = [level.value for level in FairnessLevel]
        names = text.split(",")
        if names not in ([each for each in known if each in names], []) or names[0] == FairnessLevel.INTERACTION:
            raise ValueError(
                f"expected some of {', '.join(known)} in this order, the first of them tenant or user; got {text!r}"
            )
        return cls(tuple(FairnessLevel(name) for name in names))

    def __len__(self) -> int:
        return len(self.levels)

    def __str__(self) -> str:
        return ",".join(self.levels)

    @property
    def are_clients_highest(self) -> bool:
        return self.levels[0] is FairnessLevel.USER

    def path(self, client: str, interaction: str) -> Path:
        """Return the names of the accounts of a request, the highest first."""
        path = self.client_path(client)
        return (*path, interaction) if FairnessLevel.INTERACTION in self.levels else path

    def client_path(self, client: str) -> Path:
        """Return the part of a path that the client alone determines."""
        path: Path = ()
        if FairnessLevel.TENANT in self.levels:
            path = (tenant_of(client),)
        return (*path, client) if FairnessLevel.USER in self.levels else path

    def least_weight(self, request: Request) -> int:
        """Return the least weight of `request` at any level in thousandths: `weight` at the highest, `user_weight`
        below."""
        return request.weight if len(self.levels) == 1 else min(request.weight, request.user_weight)


FLAT = FairnessLevels()


class AccountTree:
    """The accounts of all levels, and one for each client, which is reported under its name.

    A client whose user is the highest level has one account for both. An account without requests is idle. Of each
    level the `most_idle` accounts that became idle last are kept, and at most one more until the next event. What is
    below a forgotten account is forgotten with it.
    """

    def __init__(self, levels: FairnessLevels = FLAT, most_idle: int = MOST_IDLE, quantum: int = 0) -> None:
        self.levels = levels
        self.exempt = 0  # number of waiting requests that are never dropped for others
        self._most_idle = most_idle
        self._idle = [OrderedDict[Account, None]() for _ in levels.levels]
        self.root = Siblings(quantum, self._idle[0])
        self._clients = self.root
        if not levels.are_clients_highest:
            self._idle.append(OrderedDict())
            self._clients = Siblings(quantum, self._idle[-1])
        self.by_client = self._clients.members
        self._held: dict[Request, int] = {}  # running request -> its pages that its accounts hold
        self._open: dict[Request, None] = {}  # running requests with a part of their prompt that no step was given
        self._aside: dict[Request, None] = {}  # waiting requests for which nobody is hungry

    def __iter__(self) -> Iterator[Account]:
        """Iterate over the accounts of all levels."""
        return self.root.and_below()

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def clients(self) -> Collection[Account]:
        return self.by_client.values()

    def of(self, request: Request) -> "AccountTree":
        """Return the tree of the class of `request`: all requests are of one class here; see ClassedAccounts."""
        return self

    def path(self, request: Request) -> Path:
        """Return the names of the accounts of a new `request`, the highest first."""
        return self.levels.path(request.client, request.interaction)

    def of_client(self, name: str) -> list[Account]:
        """Return the accounts of a client, one for each class in which it has one."""
        return [self.by_client[name]] if name in self.by_client else []

    def waiting(self, client: str) -> int:
        account = self.by_client.get(client)
        return 0 if account is None else account.waiting

    def balance(self, path: Path) -> int:
        """Return the balance at the end of `path` in micro-units, also where there is no account."""
        siblings = self.root
        for name in path[:-1]:
            above = siblings.members.get(name)
            if above is None or above.members is None:
                return 0
            siblings = above.members
        account = siblings.members.get(path[-1])
        return siblings.newcomers_balance if account is None else account.balance

    @property
    def droppable(self) -> int:
        """The number of waiting requests that may be dropped for others."""
        return sum(account.droppable for account in self.root.members.values())

    def leaf_to_drop_from(self, request: Request) -> Account | None:
        """Return the leaf whose queue is the longest, if `request` may displace a request from it.

        At the highest level where another account has a longer queue than the account of `request`, the longest queue
        is that account's, and within it again the longest at each level below. Return None if there is no such level,
        or if no request may be dropped. The own queues count as empty for a request that itself is never dropped. With
        a limit on the whole queue alone, one client's flood would drop all others before a policy could be fair.
        """
        siblings: Siblings | None = self.root
        account, is_own = None, True  # whether the chosen accounts are those of `request`
        for name in request.path:
            if siblings is None or not siblings.longest:
                return None
            account = siblings.members.get(name)
            own = 0 if request.is_exempt or account is None else account.droppable
            is_own = is_own and siblings.longest == own
            if not is_own or account is None:
                account = siblings.with_longest_queue()
            siblings = account.members
        return None if is_own else account

    def arrived(self, request: Request) -> None:
        """Open the accounts on the path of a new `request`, which waits; they have shares from now on."""
        self._trim()
        siblings, weight = self.root, request.weight
        for level, name in enumerate(request.path[:-1], start=1):
            above = self._open_account(siblings, name, weight)
            if above.members is None:
                above.members = Siblings(siblings.quantum, self._idle[level], above)
            siblings, weight = above.members, request.user_weight
        request.account = leaf = self._open_account(siblings, request.path[-1], weight)
        request.accounts = leaf.lineage
        if self._clients is not self.root:
            request.accounts = (*leaf.lineage, self._open_account(self._clients, request.client, request.weight))
        self._wait(request, 1)
        self._hunger(request, 1)

    def _open_account(self, siblings: Siblings, name: str, weight: int) -> Account:
        account = siblings.members.get(name)
        if account is None:
            account = siblings.members[name] = Account(siblings, name)
        else:
            siblings.idle.pop(account, None)
        siblings.weigh(account, weight)
        return account

    def admitted(self, request: Request) -> None:
        """Record that `request` has entered the running batch and holds pages; it is open until it is `planned`."""
        pages = self._held[request] = len(request.pages) - request.shared
        for account in request.accounts:
            account.running += 1
            account.pages += pages
        self._open[request] = None
        self._wait(request, -1)

    def set_aside(self, request: Request) -> None:
        """Record that nobody is hungry for a waiting `request` until it is `put_back`: it has to wait for another."""
        self._aside[request] = None
        self._hunger(request, -1)

    def put_back(self, request: Request) -> None:
        """Record that `request`, which was set aside, waits for its turn again."""
        del self._aside[request]
        self._hunger(request, 1)

    def planned(self, request: Request) -> None:
        """Record that steps were given all of the prompt of an open `request`."""
        del self._open[request]
        self._hunger(request, -1)

    def is_open(self, request: Request) -> bool:
        """Return whether `request` runs and has a part of its prompt that no step was given."""
        return request in self._open

    def grew(self, request: Request, pages: int) -> None:
        """Record that a running `request` holds `pages` more."""
        self._held[request] += pages
        for account in request.accounts:
            account.pages += pages

    def preempted(self, request: Request) -> None:
        """Record that `request` left the batch, released its pages and waits for its turn again."""
        self._stop(request)
        self._wait(request, 1)
        self._hunger(request, 1)

    def withdrawn(self, request: Request) -> None:
        """Record that `request` has left the queue for good; its accounts without requests are idle."""
        self._wait(request, -1)
        self._hunger(request, -1)
        self._close(request)

    def finished(self, request: Request) -> None:
        """Record that `request` has left the running batch for good; its accounts without requests are idle."""
        self._stop(request)
        self._close(request)

    def _close(self, request: Request) -> None:
        self._trim()
        for account in request.accounts:
            if not (account.waiting or account.running):
                account.siblings.weigh(account, 0)
                account.siblings.idle[account] = None

    def _stop(self, request: Request) -> None:
        pages = self._held.pop(request)
        for account in request.accounts:
            account.running -= 1
            account.pages -= pages
        if request in self._open:
            self.planned(request)

    def _hunger(self, request: Request, by: int) -> None:
        """Add a hungry request, or remove it: `by` is 1 or -1."""
        for account in request.accounts:
            account.hungry += by
            if account.hungry == max(by, 0):
                account.siblings.hungry += by

    def _wait(self, request: Request, by: int) -> None:
        """Add a waiting request, or remove it: `by` is 1 or -1."""
        for account in request.accounts:
            account.waiting += by
        if request.is_exempt:
            request.account.lineage[-1].exempt += by
            self.exempt += by
        elif not request.preemptions:
            for account in request.account.lineage:
                account.siblings.lengthen(account, by)

    def _trim(self) -> None:
        for idle in self._idle:
            while len(idle) > self._most_idle:
                account = next(iter(idle))
                account.siblings.forget(account)

    def check_invariants(self, waiting: Iterable[Request], running: Iterable[Request]) -> None:
        """Raise AssertionError unless exactly the given requests are counted."""
        waiting, running = list(waiting), list(running)
        assert self._held.keys() == set(running), "requests that run and requests that are counted differ"
        accounts = {*self, *self.clients}
        counted = {account: [0, 0, 0, 0] for account in accounts}
        for request in waiting:
            for account in request.accounts:
                counted[account][0] += 1
                counted[account][3] += request not in self._aside
        for request in running:
            for account in request.accounts:
                counted[account][1] += 1
                counted[account][2] += self._held[request]
                counted[account][3] += request in self._open
        assert self._open.keys() <= {*running}, "an open request does not run"
        assert self._aside.keys() <= {*waiting}, "a request that is set aside does not wait"
        for account, here in counted.items():
            found = [account.waiting, account.running, account.pages, account.hungry]
            assert found == here, f"{account.path}: [waiting, running, pages, hungry] are {found}, here are {here}"
            assert (account in account.siblings.idle) == (not account.requests), f"{account.path}: idle with requests"
        for idle in self._idle:
            assert len(idle) <= self._most_idle + 1, f"{len(idle)} idle accounts, at most {self._most_idle} may be kept"
            assert all(account in accounts for account in idle), "a forgotten account is idle"
        exempt = sum(request.is_exempt for request in waiting)
        assert self.exempt == exempt, f"never dropped: {exempt}, counted {self.exempt}"
        for siblings in {account.siblings: None for account in accounts}:
            siblings.check_invariants()


class ClassedAccounts:
    """The tree of `interactive` accounts and that of `background` ones; both have the same levels.

    The class is the level above the highest one. Between classes there are no shares: interactive requests go first,
    and those of the background class get what they leave. Therefore nothing that is counted in one tree (weights,
    shares of memory, rounds) depends on the requests of the other class. See AccountTree.
    """

    def __init__(self, interactive: AccountTree, background: AccountTree) -> None:
        self.levels = interactive.levels
        self.interactive = interactive
        self.background = background

    def __iter__(self) -> Iterator[Account]:
        """Iterate over the accounts of all levels, those of interactive requests first."""
        return chain(self.interactive, self.background)

    def __len__(self) -> int:
        return len(self.interactive) + len(self.background)

    def of_client(self, name: str) -> list[Account]:
        return [tree.by_client[name] for tree in (self.interactive, self.background) if name in tree.by_client]

    def waiting(self, client: str) -> int:
        """Return the number of a client's waiting interactive requests."""
        return self.interactive.waiting(client)

    @property
    def clients(self) -> list[Account]:
        """The accounts of all clients; a client with requests of both classes has two."""
        return [*self.interactive.clients, *self.background.clients]

    @property
    def droppable(self) -> int:
        """The number of waiting requests that may be dropped for others."""
        return self.interactive.droppable + self.background.droppable

    def of(self, request: Request) -> AccountTree:
        return self.background if request.background else self.interactive

    def check_invariants(self, waiting: Iterable[Request], running: Iterable[Request]) -> None:
        """Raise AssertionError unless each tree counts exactly the given requests of its class."""
        waiting, running = list(waiting), list(running)
        for tree in (self.interactive, self.background):
            tree.check_invariants(
                [request for request in waiting if self.of(request) is tree],
                [request for request in running if self.of(request) is tree],
            )
