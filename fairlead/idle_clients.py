"""Which clients are remembered: memory does not grow with clients ever seen."""

from collections import OrderedDict
from collections.abc import Iterator

# Far more than can become idle between two steps of a worker: nobody is forgotten while a step is looking at him.
MOST_IDLE = 100_000


class IdleClients:
    """Clients that have no requests, the longest idle first. Of more than `most`, that one is to be forgotten."""

    def __init__(self, most: int = MOST_IDLE) -> None:
        self._most = most
        self._clients: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._clients)

    def __contains__(self, client: str) -> bool:
        return client in self._clients

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._clients)

    def rest(self, client: str) -> str | None:
        """`client` has no requests now; returns who is to be forgotten for it, if somebody is."""
        self._clients[client] = None
        self._clients.move_to_end(client)
        return self._clients.popitem(last=False)[0] if len(self._clients) > self._most else None

    def wake(self, client: str) -> None:
        """`client` has requests, or is forgotten."""
        self._clients.pop(client, None)
