"""One client's requests that wait or have a part of their prompt to compute: longest match first, then the earliest.

A request that too many admissions of its own client have passed goes first, and while it does not fit, none of them
goes before it. Longest match alone starves requests without cached prefixes, and promotion by age in seconds would turn
the order into first come, first served under load.
"""

import heapq
from collections import deque
from collections.abc import Sequence
from itertools import islice

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
        self._is_held = False  # whether all requests are left out of the order
        self._by_key: list[tuple[RankKey, Request]] = []
        self._by_arrival: list[tuple[int, Request]] = []
        self._passed = 0  # number of admissions that passed the earliest request since it is the earliest

    def __len__(self) -> int:
        return len(self._keys) + len(self._held)

    def add(self, request: Request, key: RankKey) -> None:
        heapq.heappush(self._by_arrival, (request.arrival, request))
        self.move(request, key)

    def move(self, request: Request, key: RankKey) -> None:
        """Move `request` to the place of `key`; one that is held gets its place at the `release`."""
        if request in self._held:
            self._held[request] = key
            return
        self._keys[request] = key
        if len(self._by_key) > 2 * len(self._keys) + SPARE:
            self._by_key = [(place, waiting) for waiting, place in self._keys.items()]
            heapq.heapify(self._by_key)
        else:
            heapq.heappush(self._by_key, (key, request))

    def remove(self, request: Request) -> None:
        """Remove `request`, which is hungry no longer."""
        if self._earliest() is request:
            self._passed = 0
        del (self._keys if request in self._keys else self._held)[request]

    def admitted(self, request: Request) -> None:
        """Remove `request`, which enters the batch, and count that it passed the earliest request if that is another
        one."""
        self._passed += 1
        self.remove(request)

    def opened(self, request: Request, key: RankKey) -> None:
        """Keep `request`, which enters the batch with a part of its prompt to compute, at the place of `key`."""
        self._passed = 0 if self._earliest() is request else self._passed + 1
        self.move(request, key)

    def hold(self, request: Request) -> None:
        """Leave `request` out of the order until `release`."""
        self._held[request] = self._keys.pop(request)

    def release(self) -> None:
        """Put all held requests back into the order."""
        held, self._held, self._is_held = self._held, {}, False
        for request, key in held.items():
            self.move(request, key)

    def key(self, request: Request) -> RankKey:
        return self._keys[request]

    def hold_all(self) -> None:
        """Leave all requests out of the order until `release`. O(1)."""
        self._is_held = True

    def first_key(self) -> RankKey | None:
        """Return the smallest key; None when all requests are held, or the one that goes before all others."""
        if self._is_held or (self._held and self._is_promoted and self._earliest() in self._held):
            return None
        while self._by_key:
            key, request = self._by_key[0]
            if self._keys.get(request) == key:
                return key
            heapq.heappop(self._by_key)
        return None

    def next(self) -> Request:
        """Return the request that goes first; `first_key` must not be None."""
        if self._is_promoted:
            return self._earliest()
        self.first_key()
        return self._by_key[0][1]

    @property
    def _is_promoted(self) -> bool:
        """Whether the earliest request goes before all others."""
        return self._most_passed is not None and self._passed >= self._most_passed

    def requests(self) -> list[Request]:
        """Return all waiting requests, held ones included, in no particular order."""
        return [*self._keys, *self._held]

    def _earliest(self) -> Request:
        while True:
            request = self._by_arrival[0][1]
            if request in self._keys or request in self._held:
                return request
            heapq.heappop(self._by_arrival)


class MissingBlockIndex:
    """Waiting requests by their first missing block, which is at most one per request.

    `take` returns a bounded number of requests to look up again; the next step gets the rest.
    """

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._by_block: dict[int, dict[Request, None]] = {}  # missing block -> requests
        self._missing: dict[Request, int | None] = {}
        # Newly cached blocks that requests miss, each with the last request that was already returned for it.
        self._newly_cached: deque[tuple[int, Request | None]] = deque()

    def __len__(self) -> int:
        """Return the number of waiting requests."""
        return len(self._missing)

    def arrived(self, request: Request, matched: int) -> None:
        self._missing[request] = None
        self.place(request, matched)

    def left(self, request: Request) -> None:
        """Remove `request`, which no longer waits."""
        self._unplace(request)
        del self._missing[request]

    def place(self, request: Request, matched: int) -> None:
        """Record that `request` was looked up and matches `matched` tokens."""
        block = matched // self._block_tokens
        missing = request.digests[block] if block < len(request.digests) else None
        if missing == self._missing[request]:
            return
        self._unplace(request)
        self._missing[request] = missing
        if missing is not None:
            self._by_block.setdefault(missing, {})[request] = None

    def _unplace(self, request: Request) -> None:
        missing = self._missing[request]
        if missing is not None:
            del self._by_block[missing][request]
            if not self._by_block[missing]:
                del self._by_block[missing]

    def cached(self, digests: Sequence[int]) -> None:
        self._newly_cached.extend((digest, None) for digest in digests if digest in self._by_block)

    def take(self, most: int) -> list[Request]:
        """Return at most `most` requests whose match may have grown since the last call."""
        taken: list[Request] = []
        while self._newly_cached and len(taken) < most:
            digest, known = self._newly_cached.popleft()
            if known is not None and self._missing.get(known) == digest:
                continue  # the request still misses the block: it was evicted again
            concerned = self._by_block.get(digest, {})
            taken += islice(concerned, most - len(taken))
            if concerned and len(taken) == most:
                self._newly_cached.appendleft((digest, taken[-1]))
        return taken

    def check_invariants(self, waiting: list[Request]) -> None:
        """Raise AssertionError unless exactly the requests `waiting` are held, each under its missing block."""
        assert self._missing.keys() == set(waiting), "requests that wait and requests that are known differ"
        placed = {request: digest for digest, requests in self._by_block.items() for request in requests}
        assert placed == {request: digest for request, digest in self._missing.items() if digest is not None}
