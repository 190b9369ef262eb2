"""Names that are remembered by key for each client: of the keys and clients that were used last, a bounded number."""


class _Client:
    __slots__ = ("names", "used")
    used: float  # time of the last change

    def __init__(self) -> None:
        self.names: dict[str, str] = {}  # the least recently remembered comes first


class RecentNames:
    """Times are seconds of a monotonic clock.

    Of a client above `per_client` names the one that was remembered longest ago is forgotten; above `total` names of
    all clients, those of the client whose names have not changed for longest; after `seconds` without a change, all of
    a client's.
    """

    def __init__(self, *, per_client: int, total: int, seconds: float) -> None:
        self._per_client = per_client
        self._total = total
        self._seconds = seconds
        self._clients: dict[str, _Client] = {}  # the least recently changed comes first
        self._count = 0  # names of all clients

    def __len__(self) -> int:
        """Return the number of clients with remembered names."""
        return len(self._clients)

    def find(self, client: str, key: str, now: float) -> str | None:
        """Return the name that `client` has by `key`, or None."""
        self._forget_unused(now)
        found = self._clients.get(client)
        return None if found is None else found.names.get(key)

    def remember(self, client: str, key: str, name: str | None, now: float) -> None:
        """Remember `name` by `key` as the client's latest one; with None, forget the one that was there."""
        found = self._take(client)
        found.names.pop(key, None)
        if name is not None:
            found.names[key] = name
        if len(found.names) > self._per_client:
            del found.names[next(iter(found.names))]
        if found.names:
            found.used = now
            self._clients[client] = found
            self._count += len(found.names)
        while self._count > self._total:
            self._take(next(iter(self._clients)))

    def check_invariants(self) -> None:
        """Raise AssertionError with detail if a limit or the order of the clients is violated, or a count is wrong."""
        last = float("-inf")
        for client, found in self._clients.items():
            assert 0 < len(found.names) <= self._per_client, f"{client}: {len(found.names)} names"
            assert found.used >= last, f"{client}: kept behind a client that changed later"
            last = found.used
        count = sum(len(found.names) for found in self._clients.values())
        assert count == self._count <= self._total, f"{count} names, counted {self._count}, at most {self._total}"

    def _take(self, client: str) -> _Client:
        found = self._clients.pop(client, None) or _Client()
        self._count -= len(found.names)
        return found

    def _forget_unused(self, now: float) -> None:
        while self._clients:
            client, found = next(iter(self._clients.items()))
            if now - found.used < self._seconds:
                return
            self._take(client)
