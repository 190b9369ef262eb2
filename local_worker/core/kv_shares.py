"""How much of the KV cache each client holds, and what of that is beyond its share.

The cache is shared out, by weight, among the clients that wait or run. What a request found cached when it entered was
there without it, and does not count; everything else that its pages hold does, used or not.
"""

from collections import Counter
from collections.abc import Iterable

from local_worker.core.request import Request


class KVShares:
    """Of `pages` pages. A client weighs what its latest request does."""

    def __init__(self, pages: int) -> None:
        self._pages = pages
        self._requests: Counter[str] = Counter()  # of each client, waiting and running
        self._weights: dict[str, int] = {}
        self._weight = 0  # of all of them
        self._running: dict[str, dict[Request, int]] = {}  # with the pages that each found cached

    def arrived(self, request: Request) -> None:
        """`request` waits; its client has a share from now on."""
        client = request.client
        self._weight += request.weight - self._weights.get(client, 0)
        self._weights[client] = request.weight
        self._requests[client] += 1

    def entered(self, request: Request) -> None:
        """`request` runs, and holds pages."""
        self._running.setdefault(request.client, {})[request] = request.shared

    def preempted(self, request: Request) -> None:
        """`request` waits again, without its pages."""
        running = self._running[request.client]
        del running[request]
        if not running:
            del self._running[request.client]

    def left(self, request: Request) -> None:
        """`request` neither waits nor runs."""
        client = request.client
        if request in self._running.get(client, ()):
            self.preempted(request)
        self._requests[client] -= 1
        if not self._requests[client]:
            del self._requests[client]
            self._weight -= self._weights.pop(client)

    def share(self, client: str) -> int:
        """Pages of a client that waits or runs."""
        return self._pages * self._weights[client] // self._weight

    def held(self, client: str) -> int:
        """Pages that the client's running requests hold and did not find cached."""
        return sum(len(request.pages) - cached for request, cached in self._running.get(client, {}).items())

    def beyond(self, client: str, pages: int) -> int:
        """By how many pages the client would be beyond its share if it held so many more; 0 within it."""
        if len(self._weights) == 1:
            return 0
        return max(0, self.held(client) + pages - self.share(client))

    def check_invariants(self, waiting: Iterable[Request], running: Iterable[Request]) -> None:
        """Raise AssertionError unless these requests, and no others, are counted."""
        running = list(running)
        counted = {request for requests in self._running.values() for request in requests}
        assert counted == set(running), "requests that run and requests that are counted differ"
        here = Counter(request.client for request in (*waiting, *running))
        assert self._requests == here, f"requests {self._requests}, here are {here}"
        assert self._weights.keys() == here.keys(), f"shares of {list(self._weights)}, here are {list(here)}"
        assert self._weight == sum(self._weights.values()), f"{self._weight} in all, of {self._weights}"
