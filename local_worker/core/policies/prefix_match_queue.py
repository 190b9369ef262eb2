"""One client's waiting requests: the longest match first, then the earliest.

A request that too many admissions of its own client have passed goes first. Longest match alone starves requests
without cached prefixes, and promotion by age in seconds would turn the order into first come, first served under load.
"""

import heapq

from local_worker.core.request import Request

SPARE = 16  # entries of changed keys that are always kept, so that few requests rarely pay for a new heap
RankKey = tuple[int, int]  # -matched tokens, arrival


class PrefixMatchQueue:
    """Heaps with lazy deletion, O(log n) amortised.

    After `most_passed` admissions that passed the earliest request, that request goes first; None: it never does.
    """

    def __init__(self, most_passed: int | None) -> None:
        self._most_passed = most_passed
        self._keys: dict[Request, RankKey] = {}
        self._held: dict[Request, RankKey] = {}
        self._by_key: list[tuple[RankKey, Request]] = []
        self._by_arrival: list[tuple[int, Request]] = []
        self._passed = 0  # number of admissions that passed the earliest request since it is the earliest

    def __len__(self) -> int:
        return len(self._keys) + len(self._held)

    def add(self, request: Request, key: RankKey) -> None:
        """Add a waiting `request` with its `key`."""
        heapq.heappush(self._by_arrival, (request.arrival, request))
        self.move(request, key)

    def move(self, request: Request, key: RankKey) -> None:
        """Move `request` to the place of `key`."""
        self._keys[request] = key
        if len(self._by_key) > 2 * len(self._keys) + SPARE:
            self._by_key = [(place, waiting) for waiting, place in self._keys.items()]
            heapq.heapify(self._by_key)
        else:
            heapq.heappush(self._by_key, (key, request))

    def remove(self, request: Request) -> None:
        """Remove `request`, which no longer waits."""
        if self._earliest() is request:
            self._passed = 0
        del self._keys[request]

    def admitted(self, request: Request) -> None:
        """Remove `request`, which enters the batch, and count that it passed the earliest request if that is another
        one."""
        self._passed += 1
        self.remove(request)

    def hold(self, request: Request) -> None:
        """Leave `request` out of the order until `release`."""
        self._held[request] = self._keys.pop(request)

    def release(self) -> None:
        """Put all held requests back into the order."""
        for request, key in self._held.items():
            self.move(request, key)
        self._held.clear()

    def key(self, request: Request) -> RankKey:
        """Return the key of a request that is not held."""
        return self._keys[request]

    def first_key(self) -> RankKey | None:
        """Return the smallest key; None when all requests are held."""
        while self._by_key:
            key, request = self._by_key[0]
            if self._keys.get(request) == key:
                return key
            heapq.heappop(self._by_key)
        return None

    def next(self) -> Request:
        """Return the next request to admit; at least one request must not be held."""
        earliest = self._earliest()
        promoted = self._most_passed is not None and self._passed >= self._most_passed
        if promoted and earliest in self._keys:
            return earliest
        self.first_key()
        return self._by_key[0][1]

    def requests(self) -> list[Request]:
        """Return all waiting requests, held ones included, in no particular order."""
        return [*self._keys, *self._held]

    def _earliest(self) -> Request:
        while True:
            request = self._by_arrival[0][1]
            if request in self._keys or request in self._held:
                return request
            heapq.heappop(self._by_arrival)
