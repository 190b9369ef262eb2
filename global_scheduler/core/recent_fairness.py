"""Equality of the recent service of clients that were always backlogged."""

from collections.abc import Callable, Collection

from serving.statistics import jain_index


class RecentFairness:
    """Jain's index over the last full window, of the clients that had requests waiting at every observation.

    Only siblings are compared, because only they are entitled to equal service; the least index of all groups counts.
    """

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._began: float | None = None
        self._bases: dict[str, float] = {}  # service at the window's begin of clients that have been waiting since
        self.index: float | None = None  # None: no group had two such clients in the last full window
        self.clients = 0  # number of clients that `index` compares

    def observe(
        self,
        waiting: Collection[str],
        weighted: Callable[[str], float],
        siblings: Callable[[str], str],
        now: float,
    ) -> None:
        """Observe which clients wait; call it several times per window.

        `weighted(client)` returns the client's service over weight so far, in cost units, and `siblings(client)` the
        name of its group; `now` is in seconds.
        """
        self._bases = {client: base for client, base in self._bases.items() if client in waiting}
        if self._began is not None and now - self._began < self._window_seconds:
            return
        # The service of a replaced worker starts from zero again, so a difference may be negative.
        groups: dict[str, list[float]] = {}
        for client, base in self._bases.items():
            groups.setdefault(siblings(client), []).append(max(0.0, weighted(client) - base))
        compared = [gained for gained in groups.values() if len(gained) > 1]
        self.clients = sum(map(len, compared))
        self.index = min(map(jain_index, compared), default=None)
        self._began, self._bases = now, {client: weighted(client) for client in waiting}

    def check_invariants(self) -> None:
        assert self.index is None or 0 < self.index <= 1 + 1e-9, f"Jain's index is {self.index}"
        assert (self.index is None) == (self.clients < 2), f"{self.clients} clients, index {self.index}"
