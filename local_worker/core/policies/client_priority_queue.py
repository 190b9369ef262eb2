"""Clients by a key that changes often; the least first."""

import heapq


class ClientPriorityQueue:
    """Lazy: a changed key leaves its old entry behind, which is dropped when it comes up. O(log n) amortised."""

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
        if len(self._heap) > 2 * len(self._keys) + 16:
            self._heap = [(known, each) for each, known in self._keys.items()]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (key, client))

    def discard(self, client: str) -> None:
        """Take `client` out, if it is there."""
        self._keys.pop(client, None)

    def least(self) -> str | None:
        """The client with the least key; None without clients."""
        while self._heap:
            key, client = self._heap[0]
            if self._keys.get(client) == key:
                return client
            heapq.heappop(self._heap)
        return None
