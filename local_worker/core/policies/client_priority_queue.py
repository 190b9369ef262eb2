"""A priority queue of clients whose keys change often; the smallest key comes first."""

import heapq

SPARE = 16  # entries of changed keys that are always kept, so that few clients rarely pay for a new heap


class ClientPriorityQueue:
    """A heap with lazy deletion: the old entry of a changed key is dropped at the top. O(log n) amortised."""

    __slots__ = ("_heap", "_keys")

    def __init__(self) -> None:
        self._keys: dict[str, tuple[int, ...]] = {}
        self._heap: list[tuple[tuple[int, ...], str]] = []

    def __contains__(self, client: str) -> bool:
        return client in self._keys

    def put(self, client: str, key: tuple[int, ...]) -> None:
        """Add `client`, or change its key."""
        if self._keys.get(client) == key:
            return
        self._keys[client] = key
        if len(self._heap) > 2 * len(self._keys) + SPARE:
            self._heap = [(known, each) for each, known in self._keys.items()]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (key, client))

    def discard(self, client: str) -> None:
        """Remove `client`, if it is in the queue."""
        self._keys.pop(client, None)

    def least(self) -> str | None:
        """Return the client with the smallest key; None when the queue is empty."""
        return self._heap[0][1] if self._is_clean() else None

    def least_key(self) -> tuple[int, ...] | None:
        """Return the smallest key; None when the queue is empty."""
        return self._heap[0][0] if self._is_clean() else None

    def _is_clean(self) -> bool:
        """Drop entries that are no longer valid from the top; return whether a valid one is left."""
        while self._heap:
            key, client = self._heap[0]
            if self._keys.get(client) == key:
                return True
            heapq.heappop(self._heap)
        return False
