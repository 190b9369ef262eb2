"""Metrics of throttling: the decisions of the rate limit service, and the limits that processes share."""

from opentelemetry.metrics import Meter

from serving.telemetry.metrics import Counter, observe
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


def observe_sharing(meter: Meter, store: Store) -> None:
    """Show whether and with how many processes limits are shared."""
    gauge = meter.create_observable_gauge
    observe(
        gauge, "fairlead.limits.degraded", lambda: int(store.degraded), "1: Redis is out of reach, counting by itself"
    )
    observe(gauge, "fairlead.limits.gateways", lambda: store.gateways, "Gateways that share the limits")
