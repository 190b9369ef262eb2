"""Which waiting requests a newly cached block concerns: those for which it is the first block that was missing."""

from collections import deque
from collections.abc import Sequence
from itertools import islice

from local_worker.core.request import Request


class MissingBlockIndex:
    """Each request waits on one block at most, so a block's news reach only whom they concern.

    `take` hands out a bounded number of requests to be looked up; what is left over comes at the next step.
    """

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._on: dict[int, dict[Request, None]] = {}  # missing block -> requests
        self._missing: dict[Request, int | None] = {}
        # Blocks that became cached while somebody waited on them, each with one who was looked up for it already.
        self._news: deque[tuple[int, Request | None]] = deque()

    def arrived(self, request: Request, matched: int) -> None:
        """`request` matches so many tokens."""
        self._missing[request] = None
        self.place(request, matched)

    def left(self, request: Request) -> None:
        """`request` waits no more."""
        self._unplace(request)
        del self._missing[request]

    def place(self, request: Request, matched: int) -> None:
        """`request` was looked up and matches so many tokens."""
        block = matched // self._block_tokens
        missing = request.digests[block] if block < len(request.digests) else None
        if missing == self._missing[request]:
            return
        self._unplace(request)
        self._missing[request] = missing
        if missing is not None:
            self._on.setdefault(missing, {})[request] = None

    def _unplace(self, request: Request) -> None:
        missing = self._missing[request]
        if missing is not None:
            del self._on[missing][request]
            if not self._on[missing]:
                del self._on[missing]

    def cached(self, digests: Sequence[int]) -> None:
        """These blocks became cached."""
        self._news.extend((digest, None) for digest in digests if digest in self._on)

    def take(self, most: int) -> list[Request]:
        """At most so many requests whose match may have grown."""
        taken: list[Request] = []
        while self._news and len(taken) < most:
            digest, known = self._news.popleft()
            if known is not None and self._missing.get(known) == digest:
                continue  # it did not help them: the block is gone again
            concerned = self._on.get(digest, {})
            taken += islice(concerned, most - len(taken))
            if concerned and len(taken) == most:
                self._news.appendleft((digest, taken[-1]))
        return taken

    def check_invariants(self, waiting: list[Request]) -> None:
        """Exactly those who wait are known, each under the block it misses."""
        assert self._missing.keys() == set(waiting), "requests that wait and requests that are known differ"
        placed = {request: digest for digest, requests in self._on.items() for request in requests}
        assert placed == {request: digest for request, digest in self._missing.items() if digest is not None}
