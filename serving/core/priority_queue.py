"""A priority queue of clients whose keys change often; the smallest key comes first."""

import heapq
from collections.abc import Iterator

SPARE = 16  # entries of changed keys that are always kept, so that few clients rarely pay for a new heap


class PriorityQueue:
    """A heap with lazy deletion: the old entry of a changed key is dropped at the top. O(log n) amortised."""

    __slots__ = ("_heap", "_keys")

    def __init__(self) -> None:
        self._keys: dict[str, tuple[int, ...]] = {}
        self._heap: list[tuple[tuple[int, ...], str]] = []

    def __contains__(self, client: str) -> bool:
        return client in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the clients in the order of their keys; the queue must not change meanwhile. O(log n) each."""
        heap = self._heap
        ahead = [(heap[0], 0)] if heap else []
        last = None
        while ahead:
            entry, place = heapq.heappop(ahead)
            if self._keys.get(entry[1]) is entry[0] and entry != last:
                last = entry
                yield entry[1]
            for child in range(2 * place + 1, min(2 * place + 3, len(heap))):
                heapq.heappush(ahead, (heap[child], child))

    def put(self, client: str, key: tuple[int, ...]) -> None:
        """Add `client`, or change its key."""
        old = self._keys.get(client)
        if old == key:
            return
        self._keys[client] = key
        if old is not None and self._heap[0][0] is old and self._heap[0][1] == client:
            heapq.heapreplace(self._heap, (key, client))
        elif len(self._heap) > 2 * len(self._keys) + SPARE:
            self._heap = [(known, each) for each, known in self._keys.items()]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (key, client))

    def key(self, client: str) -> tuple[int, ...] | None:
        """Return the key of `client`; None if it is not in the queue."""
        return self._keys.get(client)

    def discard(self, client: str) -> None:
        """Remove `client`, if it is in the queue."""
        self._keys.pop(client, None)

    def take_least(self) -> tuple[tuple[int, ...], list[str]]:
        """Remove all clients that have the smallest key; return the key and them. The queue must not be empty."""
        first = self.first()
        assert first is not None, "the queue is empty"
        least, taken = first[0], []
        while self._heap and self._heap[0][0] == least:
            key, client = heapq.heappop(self._heap)
            if self._keys.get(client) is key:
                taken.append(client)
                del self._keys[client]
        return least, taken

    def least(self) -> str | None:
        """Return the client with the smallest key; None when the queue is empty."""
        first = self.first()
        return None if first is None else first[1]

    def first(self) -> tuple[tuple[int, ...], str] | None:
        """Return the smallest key and its client; None when the queue is empty."""
        heap, keys = self._heap, self._keys
        while heap:
            first = heap[0]
            if keys.get(first[1]) is first[0]:  # the entry of an earlier key has another tuple
                return first
            heapq.heappop(heap)
        return None
