"""A map of values by client, whose memory does not grow with the number of clients ever seen."""

from collections import OrderedDict
from collections.abc import ItemsView, Iterator, ValuesView
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

# Far more clients than can become idle between two steps of a worker, so a step never loses a client that it uses.
MOST_IDLE = 100_000


class BoundedClientMap(Generic[K, V]):
    """A map with one value per client.

    The owner of the map marks each client as active or idle; a client with requests is usually active. Active clients
    are never removed. When more than `most` clients are idle, the one that became idle first is removed. All operations
    take O(1); iteration is in order of insertion.
    """

    def __init__(self, most: int = MOST_IDLE) -> None:
        self._most = most
        self._values: dict[K, V] = {}
        self._idle: OrderedDict[K, None] = OrderedDict()  # the client that became idle first comes first

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[K]:
        return iter(self._values)

    def __contains__(self, client: K) -> bool:
        return client in self._values

    def __getitem__(self, client: K) -> V:
        return self._values[client]

    def __setitem__(self, client: K, value: V) -> None:
        """Store a client's value. A new client becomes active; a known client stays active or idle."""
        self._values[client] = value

    def get(self, client: K) -> V | None:
        """Return the client's value, or None if the map does not contain the client."""
        return self._values.get(client)

    def values(self) -> ValuesView[V]:
        return self._values.values()

    def items(self) -> ItemsView[K, V]:
        """Return all clients with their values."""
        return self._values.items()

    def activate(self, client: K) -> None:
        """Mark the client as active until `rest` is called."""
        self._idle.pop(client, None)

    def rest(self, client: K) -> V | None:
        """Mark a client of the map as idle. Return the value of the client that was removed for it, if there is one."""
        self._idle[client] = None
        self._idle.move_to_end(client)
        return self._values.pop(self._idle.popitem(last=False)[0]) if len(self._idle) > self._most else None

    def forget(self, client: K) -> None:
        """Remove the client, active or idle; raise KeyError if the map does not contain it."""
        del self._values[client]
        self._idle.pop(client, None)

    def is_idle(self, client: K) -> bool:
        return client in self._idle

    def latest_idle(self) -> Iterator[K]:
        """Iterate over the idle clients; the client that became idle last comes first."""
        return reversed(self._idle)

    def check_invariants(self) -> None:
        """Raise AssertionError if there are too many idle clients, or idle clients without a value."""
        assert len(self._idle) <= self._most, f"{len(self._idle)} idle clients, at most {self._most} may be kept"
        unknown = [client for client in self._idle if client not in self._values]
        assert not unknown, f"idle clients without values: {unknown}"
