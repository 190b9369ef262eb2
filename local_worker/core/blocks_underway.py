"""The blocks that running requests are computing: a request that waits for one of them need not compute it itself."""

from local_worker.core.request import Request


class BlocksUnderway:
    """Digests of prompt blocks that are not cached yet, each with the running request that computes it."""

    def __init__(self) -> None:
        self._owners: dict[int, Request] = {}

    def __contains__(self, digest: int) -> bool:
        return digest in self._owners

    def owner(self, digest: int) -> Request | None:
        """Return the running request that computes the block; None if there is none."""
        return self._owners.get(digest)

    def admitted(self, request: Request) -> None:
        """Add the blocks of `request` that it did not find cached, but for those that another request computes."""
        for digest in request.digests[request.shared :]:
            self._owners.setdefault(digest, request)

    def cached(self, digest: int) -> None:
        """Remove a block that is cached now."""
        self._owners.pop(digest, None)

    def left(self, request: Request) -> None:
        """Remove the blocks of `request` that it has not computed, and will not make available."""
        for digest in request.digests[request.shared :]:
            if self._owners.get(digest) is request:
                del self._owners[digest]

    def check_invariants(self, running: list[Request]) -> None:
        """Raise AssertionError when a block belongs to a request that does not run."""
        assert {*self._owners.values()} <= {*running}, "a request that does not run computes a block"
