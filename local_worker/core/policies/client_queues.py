"""Waiting requests by client; those of one client are in order of arrival."""

from collections.abc import Collection

from local_worker.core.request import Request


class ClientQueues:
    """One queue for each client with waiting requests. Iteration follows the order of insertion, not of hashes."""

    def __init__(self) -> None:
        self._by_client: dict[str, dict[Request, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, client: str) -> bool:
        return client in self._by_client

    @property
    def clients(self) -> Collection[str]:
        """The clients with at least one waiting request."""
        return self._by_client.keys()

    def add(self, request: Request) -> None:
        self._by_client.setdefault(request.client, {})[request] = None
        self._count += 1

    def restore(self, request: Request) -> None:
        """Insert `request` into its client's queue in order of arrival."""
        self.add(request)
        queue = self._by_client[request.client]
        self._by_client[request.client] = dict.fromkeys(sorted(queue, key=lambda waiting: waiting.arrival))

    def remove(self, request: Request) -> None:
        queue = self._by_client[request.client]
        del queue[request]
        self._count -= 1
        if not queue:
            del self._by_client[request.client]

    def first(self, client: str) -> Request:
        return next(iter(self._by_client[client]))
