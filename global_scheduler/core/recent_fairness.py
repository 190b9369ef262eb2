"""How equal the service of late was, among the clients that always wanted more."""

from collections.abc import Mapping
from dataclasses import dataclass

from fairlead.metrics import jain_index


@dataclass(frozen=True, slots=True)
class Standing:
    """A client as of now: service over weight since the start, in cost units, and whether requests of it wait."""

    weighted: float
    waiting: bool


class RecentFairness:
    """Jain's index over the last full window, of clients that had requests waiting whenever it was looked at."""

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._began: float | None = None
        self._bases: dict[str, float] = {}  # of those that have been waiting since the window began
        self.index: float | None = None  # None: fewer than two such clients in the last full window
        self.clients = 0  # how many there were

    def observe(self, standings: Mapping[str, Standing], now: float) -> None:
        """To be called a few times per window."""
        waiting = {client: standing.weighted for client, standing in standings.items() if standing.waiting}
        self._bases = {client: base for client, base in self._bases.items() if client in waiting}
        if self._began is not None and now - self._began < self._window_seconds:
            return
        # A worker that was replaced counts from zero again: nobody's service was negative.
        gained = [max(0.0, waiting[client] - base) for client, base in self._bases.items()]
        self.clients = len(gained)
        self.index = jain_index(gained) if len(gained) > 1 else None
        self._began, self._bases = now, waiting

    def check_invariants(self) -> None:
        """Raises AssertionError."""
        assert self.index is None or 0 < self.index <= 1 + 1e-9, f"Jain's index is {self.index}"
        assert (self.index is None) == (self.clients < 2), f"{self.clients} clients, index {self.index}"
