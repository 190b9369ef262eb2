"""A priority queue of clients whose keys change often; the smallest key comes first."""

import heapq
from collections.abc import Iterator

SPARE = 16  # entries of changed keys that are always kept, so that few clients rarely pay for a new heap


class PriorityQueue:
    """A heap with lazy deletion: the old entry of a changed key is dropped at the top. O(log n) amortised."""

    __slots__ = ("_entries", "_heap")

    def __init__(self) -> None:
        self._entries: dict[str, tuple[tuple[int, ...], str]] = {}  # client -> its key, and the client
        self._heap: list[tuple[tuple[int, ...], str]] = []  # these entries, and earlier ones

    def __contains__(self, client: str) -> bool:
        return client in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the clients in the order of their keys; the queue must not change meanwhile. O(log n) each."""
        heap = self._heap
        ahead = [(heap[0], 0)] if heap else []
        while ahead:
            entry, place = heapq.heappop(ahead)
            if self._entries.get(entry[1]) is entry:
                yield entry[1]
            for child in range(2 * place + 1, min(2 * place + 3, len(heap))):
                heapq.heappush(ahead, (heap[child], child))

    def put(self, client: str, key: tuple[int, ...]) -> None:
        """Add `client`, or change its key."""
        old = self._entries.get(client)
        if old is not None and old[0] == key:
            return
        entry = self._entries[client] = key, client
        if old is not None and self._heap[0] is old:
            heapq.heapreplace(self._heap, entry)
        elif len(self._heap) > 2 * len(self._entries) + SPARE:
            self._heap = list(self._entries.values())
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, entry)

    def key(self, client: str) -> tuple[int, ...] | None:
        """Return the key of `client`; None if it is not in the queue."""
        entry = self._entries.get(client)
        return None if entry is None else entry[0]

    def discard(self, client: str) -> None:
        """Remove `client`, if it is in the queue."""
        self._entries.pop(client, None)

    def take_least(self) -> tuple[tuple[int, ...], list[str]]:
        """Remove all clients that have the smallest key; return the key and them. The queue must not be empty."""
        first = self.first()
        assert first is not None, "the queue is empty"
        least, taken = first[0], []
        while self._heap and self._heap[0][0] == least:
            entry = heapq.heappop(self._heap)
            if self._entries.get(entry[1]) is entry:
                taken.append(entry[1])
                del self._entries[entry[1]]
        return least, taken

    def least(self) -> str | None:
        """Return the client with the smallest key; None when the queue is empty."""
        first = self.first()
        return None if first is None else first[1]

    def first(self) -> tuple[tuple[int, ...], str] | None:
        """Return the smallest key and its client; None when the queue is empty."""
        heap, entries = self._heap, self._entries
        while heap:
            first = heap[0]
            if entries.get(first[1]) is first:
                return first
            heapq.heappop(heap)
        return None
