"""How equal the service of late was, among the clients that always wanted more."""

from collections.abc import Callable, Collection

from serving.metrics import jain_index


class RecentFairness:
    """Jain's index over the last full window, of clients that had requests waiting whenever it was looked at."""

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._began: float | None = None
        self._bases: dict[str, float] = {}  # of those that have been waiting since the window began
        self.index: float | None = None  # None: fewer than two such clients in the last full window
        self.clients = 0  # how many there were

    def observe(self, waiting: Collection[str], weighted: Callable[[str], float], now: float) -> None:
        """To be called a few times per window. `weighted(client)`: service over weight so far, in cost units."""
        self._bases = {client: base for client, base in self._bases.items() if client in waiting}
        if self._began is not None and now - self._began < self._window_seconds:
            return
        # A worker that was replaced counts from zero again: nobody's service was negative.
        gained = [max(0.0, weighted(client) - base) for client, base in self._bases.items()]
        self.clients = len(gained)
        self.index = jain_index(gained) if len(gained) > 1 else None
        self._began, self._bases = now, {client: weighted(client) for client in waiting}

    def check_invariants(self) -> None:
        """Raises AssertionError."""
        assert self.index is None or 0 < self.index <= 1 + 1e-9, f"Jain's index is {self.index}"
        assert (self.index is None) == (self.clients < 2), f"{self.clients} clients, index {self.index}"
