"""The pages of the KV cache that each tenant, user and interaction holds, and how many of them exceed its share.

At each level the share of an account is divided among the accounts below it that have requests waiting or running, by
weight; the highest level divides the whole cache. The pages that a request found cached when it was admitted do not
count as held. All its other pages count, whether they are filled or not.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from local_worker.core.fairness_levels import FLAT, FairnessLevels
from local_worker.core.request import Request

Path = tuple[str, ...]


class KVShares:
    """The shares of a cache of `pages` pages. The weight of an account is that of its latest request."""

    def __init__(self, pages: int, levels: FairnessLevels = FLAT) -> None:
        self._pages = pages
        self._levels = levels
        self._requests: Counter[Path] = Counter()  # number of waiting and running requests
        self._weights: dict[Path, int] = {}
        self._sums: Counter[Path] = Counter()  # sum of the weights of the accounts directly below
        self._running: dict[Path, dict[Request, int]] = {}  # requests with the number of pages that they found cached

    def _paths(self, request: Request) -> Iterator[Path]:
        path = self._levels.path(request)
        return (path[:end] for end in range(1, len(path) + 1))

    def arrived(self, request: Request) -> None:
        """Record that `request` waits; its accounts have shares from now on."""
        weight = request.weight
        for path in self._paths(request):
            self._sums[path[:-1]] += weight - self._weights.get(path, 0)
            self._weights[path] = weight
            self._requests[path] += 1
            weight = request.user_weight

    def entered(self, request: Request) -> None:
        """Record that `request` has entered the running batch and holds pages."""
        for path in self._paths(request):
            self._running.setdefault(path, {})[request] = request.shared

    def preempted(self, request: Request) -> None:
        """Record that `request` waits again and has released its pages."""
        for path in self._paths(request):
            running = self._running[path]
            del running[request]
            if not running:
                del self._running[path]

    def finished(self, request: Request) -> None:
        """Record that `request` has left the running batch for good."""
        self.preempted(request)
        self.withdrawn(request)

    def withdrawn(self, request: Request) -> None:
        """Record that `request` has left the queue for good."""
        for path in self._paths(request):
            self._requests[path] -= 1
            if not self._requests[path]:
                del self._requests[path]
                self._sums[path[:-1]] -= self._weights.pop(path)
                if not self._sums[path[:-1]]:
                    del self._sums[path[:-1]]

    def share(self, path: Path) -> int:
        """Return the share of an account that has requests waiting or running, in pages."""
        share = self._pages
        for end in range(1, len(path) + 1):
            share = share * self._weights[path[:end]] // self._sums[path[: end - 1]]
        return share

    def held(self, path: Path) -> int:
        """Return the number of pages that the account's running requests hold and did not find cached."""
        return sum(len(request.pages) - cached for request, cached in self._running.get(path, {}).items())

    def beyond(self, request: Request, pages: int) -> int:
        """Return by how many pages an account of `request` would exceed its share if it held `pages` more.

        Of the accounts the one that exceeds its share by most counts. The result is 0 if none does. An account that is
        alone, as are those above it, never exceeds its share.
        """
        most, share, is_alone = 0, self._pages, True
        for path in self._paths(request):
            weight, siblings = self._weights[path], self._sums[path[:-1]]
            share = share * weight // siblings
            is_alone &= weight == siblings
            if not is_alone:
                most = max(most, self.held(path) + pages - share)
        return most

    def check_invariants(self, waiting: Iterable[Request], running: Iterable[Request]) -> None:
        """Raise AssertionError unless exactly the given requests are counted."""
        running = list(running)
        counted = {request for requests in self._running.values() for request in requests}
        assert counted == set(running), "requests that run and requests that are counted differ"
        here: dict[Path, int] = {}
        for request in (*waiting, *running):
            for path in self._paths(request):
                here[path] = here.get(path, 0) + 1
        assert {**self._requests} == here, f"requests {self._requests}, here are {here}"
        assert self._weights.keys() == here.keys(), f"shares of {list(self._weights)}, here are {list(here)}"
        sums: dict[Path, int] = {}
        for path, weight in self._weights.items():
            sums[path[:-1]] = sums.get(path[:-1], 0) + weight
        assert {**self._sums} == sums, f"{self._sums} in all, of {self._weights}"
