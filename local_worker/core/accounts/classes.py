"""The accounts of both classes of requests, each with a tree of its own.

The class is the level above the highest one. Between classes there are no shares: interactive requests go first, and
those of the background class get what they leave. Therefore nothing that is counted in one tree (weights, shares of
memory, rounds) depends on the requests of the other class.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

from local_worker.core.accounts.account import Account
from local_worker.core.accounts.tree import AccountTree
from local_worker.core.request import Request


class ClassedAccounts:
    """The tree of `interactive` accounts and that of `background` ones; both have the same levels."""

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
        """See AccountTree."""
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
        """Return the tree of the class of `request`."""
        return self.background if request.background else self.interactive

    def check_invariants(self, waiting: Iterable[Request], running: Iterable[Request]) -> None:
        """Raise AssertionError unless each tree counts exactly the given requests of its class."""
        waiting, running = list(waiting), list(running)
        for tree in (self.interactive, self.background):
            tree.check_invariants(
                [request for request in waiting if self.of(request) is tree],
                [request for request in running if self.of(request) is tree],
            )
