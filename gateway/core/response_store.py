"""Responses that clients may read again or continue, bounded in their age and in the bytes of all clients together.

A response that needs room displaces the oldest one of the client that holds most (longest queue drop). Clients are
compared by powers of two of their bytes: a client loses a response only while none holds twice as much as it. What one
client stores therefore displaces its own responses long before those of others who store little.
"""

from dataclasses import dataclass

OVERHEAD = 1024  # bytes that are counted for each response beside its texts: more than the records about it take


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    """A complete response, its client, and the conversation up to its end."""

    id: str
    client: str
    interaction: str  # in which its call counted; empty: in none
    body: bytes  # what the client was answered
    conversation: bytes  # fairlead.v1.Chat, with this response as its last message

    @property
    def size(self) -> int:
        """Count the bytes that it takes, at least."""
        return OVERHEAD + len(self.body) + len(self.conversation)


class _Client:
    __slots__ = ("ids", "size")

    def __init__(self) -> None:
        self.ids: dict[str, None] = {}  # the oldest comes first
        self.size = 0


class ResponseStore:
    """The stored responses: at most `capacity` bytes, each for `seconds`. Times are seconds of a monotonic clock."""

    def __init__(self, capacity: int, seconds: float) -> None:
        self._capacity = capacity
        self._seconds = seconds
        self._size = 0
        self._responses: dict[str, tuple[float, StoredResponse]] = {}  # with their arrival; the oldest comes first
        self._clients: dict[str, _Client] = {}
        # Bits of a client's size -> the clients, in the order of reaching it. Until room is made, one may have up to
        # twice the capacity.
        self._levels: list[dict[str, None]] = [{} for _ in range(capacity.bit_length() + 2)]

    def __len__(self) -> int:
        """Return the number of responses."""
        return len(self._responses)

    @property
    def size(self) -> int:
        """Return the bytes that all stored responses take."""
        return self._size

    def add(self, response: StoredResponse, now: float) -> bool:
        """Store `response` and return True, or return False if it is so large that it would displace itself."""
        self.forget(now)
        if response.size > self._capacity:
            return False
        self._responses[response.id] = now, response
        client = self._clients.setdefault(response.client, _Client())
        client.ids[response.id] = None
        self._resize(response.client, client, response.size)
        while self._size > self._capacity:
            largest = next(level for level in reversed(self._levels) if level)
            self.remove(next(iter(self._clients[next(iter(largest))].ids)))
        return response.id in self._responses

    def find(self, response_id: str, now: float) -> StoredResponse | None:
        """Return a response, None if it is not stored, or not any more."""
        self.forget(now)
        found = self._responses.get(response_id)
        return found[1] if found else None

    def remove(self, response_id: str) -> None:
        """Forget a response; raise KeyError if it is not stored."""
        _, response = self._responses.pop(response_id)
        client = self._clients[response.client]
        del client.ids[response_id]
        self._resize(response.client, client, -response.size)
        if not client.ids:
            del self._clients[response.client]

    def forget(self, now: float) -> None:
        """Forget the responses whose time is over; to be called every few seconds to free their memory."""
        while self._responses:
            arrived, oldest = next(iter(self._responses.values()))
            if now - arrived < self._seconds:
                return
            self.remove(oldest.id)

    def check_invariants(self) -> None:
        """Raise AssertionError with detail unless sizes and levels agree with the responses and their bound."""
        assert self._size <= self._capacity, f"{self._size} bytes, at most {self._capacity}"
        times = [arrived for arrived, _ in self._responses.values()]
        assert times == sorted(times), "a response stands behind a younger one"
        sizes = dict.fromkeys(self._clients, 0)
        for _, response in self._responses.values():
            assert response.id in self._clients[response.client].ids, f"{response.id}: unknown to its client"
            sizes[response.client] += response.size
        assert all(sizes.values()), f"clients without responses: {sizes}"
        assert sizes == {name: client.size for name, client in self._clients.items()}, f"expected {sizes}"
        assert self._size == sum(sizes.values()), f"{self._size} bytes, clients have {sizes}"
        levels = {name: bits for bits, level in enumerate(self._levels) for name in level}
        assert levels == {name: size.bit_length() for name, size in sizes.items()}, f"{levels}, clients have {sizes}"

    def _resize(self, name: str, client: _Client, change: int) -> None:
        old, new = client.size.bit_length(), (client.size + change).bit_length()
        client.size += change
        self._size += change
        if old == new:
            return
        self._levels[old].pop(name, None)
        if new:
            self._levels[new][name] = None
