"""The running requests that miss steps until the masks of their outputs are ready."""

from collections.abc import Collection, Iterable

from local_worker.core.request import Request


class LateMasks:
    """Requests that were deferred (see StepResult), until they take part in a step again."""

    def __init__(self) -> None:
        self._late: dict[Request, None] = {}
        self._ready: dict[Request, None] = {}

    @property
    def requests(self) -> Collection[Request]:
        """Those whose masks are still late."""
        return self._late.keys()

    def add(self, request: Request) -> None:
        """Record that `request` was deferred."""
        self._ready.pop(request, None)
        self._late[request] = None

    def discard(self, arrivals: Collection[int]) -> None:
        """Record that the masks of the requests with these `arrivals` are ready."""
        for request in [request for request in self._late if request.arrival in arrivals]:
            del self._late[request]
            self._ready[request] = None

    def take_back(self, requests: Iterable[Request]) -> list[Request]:
        """Return those of `requests` that were deferred: they take part again."""
        if not self._late and not self._ready:
            return []
        again = [request for request in requests if request in self._late or request in self._ready]
        for request in again:
            self.left(request)
        return again

    def left(self, request: Request) -> None:
        """Forget `request`, which has left the running batch."""
        self._late.pop(request, None)
        self._ready.pop(request, None)
