"""The pages of the KV cache that each client holds, and how many of them exceed its share.

The cache is shared out, by weight, among the clients that have requests waiting or running. The pages that a request
found cached when it was admitted do not count as held. All its other pages count, whether they are filled or not.
"""

from collections import Counter
from collections.abc import Iterable

from local_worker.core.request import Request


class KVShares:
    """The shares of a cache of `pages` pages. A client's weight is that of its latest request."""

    def __init__(self, pages: int) -> None:
        self._pages = pages
        self._requests: Counter[str] = Counter()  # client -> number of waiting and running requests
        self._weights: dict[str, int] = {}
        self._weight = 0  # sum of `_weights`
        self._running: dict[str, dict[Request, int]] = {}  # client -> request -> pages that it found cached

    def arrived(self, request: Request) -> None:
        """Record that `request` waits; its client has a share from now on."""
        client = request.client
        self._weight += request.weight - self._weights.get(client, 0)
        self._weights[client] = request.weight
        self._requests[client] += 1

    def entered(self, request: Request) -> None:
        """Record that `request` has entered the running batch and holds pages."""
        self._running.setdefault(request.client, {})[request] = request.shared

    def preempted(self, request: Request) -> None:
        """Record that `request` waits again and has released its pages."""
        running = self._running[request.client]
        del running[request]
        if not running:
            del self._running[request.client]

    def left(self, request: Request) -> None:
        """Record that `request` neither waits nor runs any more."""
        client = request.client
        if request in self._running.get(client, ()):
            self.preempted(request)
        self._requests[client] -= 1
        if not self._requests[client]:
            del self._requests[client]
            self._weight -= self._weights.pop(client)

    def share(self, client: str) -> int:
        """Return the share of a client that has requests waiting or running, in pages."""
        return self._pages * self._weights[client] // self._weight

    def held(self, client: str) -> int:
        """Return the number of pages that the client's running requests hold and did not find cached."""
        return sum(len(request.pages) - cached for request, cached in self._running.get(client, {}).items())

    def beyond(self, client: str, pages: int) -> int:
        """Return by how many pages the client would exceed its share if it held `pages` more; 0 if it would not.

        A client that is alone never exceeds its share.
        """
        if len(self._weights) == 1:
            return 0
        return max(0, self.held(client) + pages - self.share(client))

    def check_invariants(self, waiting: Iterable[Request], running: Iterable[Request]) -> None:
        """Raise AssertionError unless exactly the given requests are counted."""
        running = list(running)
        counted = {request for requests in self._running.values() for request in requests}
        assert counted == set(running), "requests that run and requests that are counted differ"
        here = Counter(request.client for request in (*waiting, *running))
        assert self._requests == here, f"requests {self._requests}, here are {here}"
        assert self._weights.keys() == here.keys(), f"shares of {list(self._weights)}, here are {list(here)}"
        assert self._weight == sum(self._weights.values()), f"{self._weight} in all, of {self._weights}"
