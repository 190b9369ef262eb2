"""The waiting requests that a newly cached block concerns: those whose first missing block it is."""

from collections import deque
from collections.abc import Sequence
from itertools import islice

from local_worker.core.request import Request


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
        """Add `request`, which matches `matched` tokens."""
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
        """Record that the blocks `digests` became cached."""
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
