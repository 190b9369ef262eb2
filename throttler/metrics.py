"""Metrics of throttling: the decisions of the rate limit service, and the limits that processes share."""

from collections.abc import Iterable

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from serving.telemetry.metrics import Counter
from throttler.core.interactions import FinishedInteraction
from throttler.store import Store


class RateLimitMetrics:
    """Count decisions. The label app has the names of the profiles only, so its values are bounded."""

    def __init__(self, meter: Meter) -> None:
        self._decisions = Counter(
            meter, "fairlead.ratelimit.decisions", ("app", "decision"), "Descriptors decided, by the decision"
        )
        self._interactions = Counter(meter, "fairlead.interactions", ("app", "reason"), "Interactions that closed")

    def decided(self, app: str, decision: str) -> None:
        """Count a decision: what the service did with a descriptor, or the outcome that refuses its call."""
        self._decisions.add(1, app, decision)

    def closed(self, interaction: FinishedInteraction) -> None:
        """Count an interaction that has closed."""
        self._interactions.add(1, interaction.key.app, interaction.reason.value)


class SharingMetrics:
    """Gauges of the limits that processes share, which are read at each collection."""

    def __init__(self, meter: Meter, store: Store) -> None:
        self._store = store
        meter.create_observable_gauge(
            "fairlead.limits.degraded", [self._degraded], description="1: Redis is out of reach, counting by itself"
        )
        meter.create_observable_gauge(
            "fairlead.limits.gateways", [self._gateways], description="Gateways that share the limits"
        )

    def _degraded(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(int(self._store.degraded))]

    def _gateways(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(self._store.gateways)]
