"""What is kept for each client, in memory that does not grow with the clients ever seen."""

from collections import OrderedDict
from collections.abc import ItemsView, Iterator, ValuesView
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

# Far more than can become idle between two steps of a worker: no client is forgotten while a step looks at it.
MOST_IDLE = 100_000


class BoundedClientMap(Generic[K, V]):
    """A value per client. A client is active or idle; its owner says which, usually by whether it has requests.

    Active clients are never forgotten. Of more than `most` idle ones, the one that rested longest ago is. All
    operations take O(1), iteration is in order of insertion.
    """

    def __init__(self, most: int = MOST_IDLE) -> None:
        self._most = most
        self._values: dict[K, V] = {}
        self._idle: OrderedDict[K, None] = OrderedDict()  # the one that rested longest ago first

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[K]:
        return iter(self._values)

    def __contains__(self, client: K) -> bool:
        return client in self._values

    def __getitem__(self, client: K) -> V:
        return self._values[client]

    def __setitem__(self, client: K, value: V) -> None:
        """A client that is not known becomes active; one that is known stays what it is."""
        self._values[client] = value

    def get(self, client: K) -> V | None:
        """The client's value; None if it is not known."""
        return self._values.get(client)

    def values(self) -> ValuesView[V]:
        """Of all clients."""
        return self._values.values()

    def items(self) -> ItemsView[K, V]:
        """All clients with their values."""
        return self._values.items()

    def activate(self, client: K) -> None:
        """The client is active until it rests."""
        self._idle.pop(client, None)

    def rest(self, client: K) -> V | None:
        """The client, which must be known, is idle from now on. Returns the value of the one forgotten, if one is."""
        self._idle[client] = None
        self._idle.move_to_end(client)
        return self._values.pop(self._idle.popitem(last=False)[0]) if len(self._idle) > self._most else None

    def forget(self, client: K) -> None:
        """Remove the client, which must be known, whatever it is."""
        del self._values[client]
        self._idle.pop(client, None)

    def is_idle(self, client: K) -> bool:
        """Whether the client is known and idle."""
        return client in self._idle

    def latest_idle(self) -> Iterator[K]:
        """The idle clients, the one that rested last first."""
        return reversed(self._idle)

    def check_invariants(self) -> None:
        """Raises AssertionError."""
        assert len(self._idle) <= self._most, f"{len(self._idle)} idle clients, at most {self._most} may be kept"
        unknown = [client for client in self._idle if client not in self._values]
        assert not unknown, f"idle clients without values: {unknown}"
