"""The exchange of claims on the pools' memory between simulated gateways: what `throttler.redis_claims` does."""

from collections.abc import Callable, Sequence

from simulation.clock import VirtualClock
from throttler.core.pool_claims import EXCHANGE_SECONDS, PoolClaims


class SharedClaims:
    """The claims at all gateways; `idle` says whether the run is over."""

    def __init__(self, gateways: Sequence[PoolClaims], clock: VirtualClock, idle: Callable[[], bool]) -> None:
        self.gateways = gateways
        self._clock = clock
        self._idle = idle

    def start(self) -> None:
        """Let gateways tell each other their claims once a second until the run is over, if there are several."""
        if len(self.gateways) > 1:
            self._exchange()

    def _exchange(self) -> None:
        now = self._clock.now
        views = [(claims, claims.view(now)) for claims in self.gateways]
        for claims in self.gateways:
            claims.replace_remote([view for each, view in views if each is not claims], now)
        if not self._idle() or now == 0:
            self._clock.after(EXCHANGE_SECONDS, self._exchange)
