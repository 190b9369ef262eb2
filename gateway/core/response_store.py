"""The responses that clients may read again or continue, bounded in its age and in the bytes of all clients together.

A response that needs room displaces the oldest one of the client that holds most (longest queue drop). Clients are
compared by powers of two of their bytes: a client loses a response only while none holds twice as much as it. What one
client stores therefore displaces its own responses long before those of others who store little.
"""

from dataclasses import dataclass

OVERHEAD = 1024  # bytes that are counted for each entry beside its texts: more than the records about it take


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
    """The stored entries: at most `capacity` bytes, each for `seconds`. Times are seconds of a monotonic clock."""

    def __init__(self, capacity: int, seconds: float) -> None:
        self._capacity = capacity
        self._seconds = seconds
        self._size = 0
        self._entries: dict[str, tuple[float, StoredResponse]] = {}  # with their arrival; the oldest comes first
        self._clients: dict[str, _Client] = {}
        # Bits of a client's size -> the clients, in the order of reaching it. Until room is made, one may have up to
        # twice the capacity.
        self._levels: list[dict[str, None]] = [{} for _ in range(capacity.bit_length() + 2)]

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._entries)

    @property
    def size(self) -> int:
        """Return the bytes that all entries take."""
        return self._size

    def add(self, entry: StoredResponse, now: float) -> bool:
        """Store `entry`, or return False if it is so large that it would displace itself."""
        self.forget(now)
        if entry.size > self._capacity:
            return False
        self._entries[entry.id] = now, entry
        client = self._clients.setdefault(entry.client, _Client())
        client.ids[entry.id] = None
        self._resize(entry.client, client, entry.size)
        while self._size > self._capacity:
            largest = next(level for level in reversed(self._levels) if level)
            self.remove(next(iter(self._clients[next(iter(largest))].ids)))
        return entry.id in self._entries

    def find(self, entry_id: str, now: float) -> StoredResponse | None:
        """Return an entry, None if it is not stored, or not any more."""
        self.forget(now)
        found = self._entries.get(entry_id)
        return found[1] if found else None

    def remove(self, entry_id: str) -> None:
        """Forget an entry; raise KeyError if it is not stored."""
        _, entry = self._entries.pop(entry_id)
        client = self._clients[entry.client]
        del client.ids[entry_id]
        self._resize(entry.client, client, -entry.size)
        if not client.ids:
            del self._clients[entry.client]

    def forget(self, now: float) -> None:
        """Forget the entries whose time is over; to be called every few seconds to free their memory."""
        while self._entries:
            arrived, oldest = next(iter(self._entries.values()))
            if now - arrived < self._seconds:
                return
            self.remove(oldest.id)

    def check_invariants(self) -> None:
        """Raise AssertionError with detail unless sizes and levels agree with the entries and their bound."""
        assert self._size <= self._capacity, f"{self._size} bytes, at most {self._capacity}"
        times = [arrived for arrived, _ in self._entries.values()]
        assert times == sorted(times), "an entry stands behind a younger one"
        sizes = dict.fromkeys(self._clients, 0)
        for _, entry in self._entries.values():
            assert entry.id in self._clients[entry.client].ids, f"{entry.id}: unknown to its client"
            sizes[entry.client] += entry.size
        assert all(sizes.values()), f"clients without entries: {sizes}"
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
