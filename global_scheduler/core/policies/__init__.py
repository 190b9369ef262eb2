"""Global policies by the name that configuration gives them.

`least-delay`, `doubleq` and `per-client-round-robin` have a bound; the other two are the usual ways to balance load.
`fairlead demo` runs `round-robin` and `per-client-round-robin` in the systems that the default is compared with.
"""

from collections.abc import Callable, Mapping

from global_scheduler.core.policies.base import Candidates, RoutePolicy, RoutePolicyConfig, RouteRequest
from global_scheduler.core.policies.doubleq import DoubleQ
from global_scheduler.core.policies.least_delay import LeastDelay
from global_scheduler.core.policies.per_client_round_robin import PerClientRoundRobin
from global_scheduler.core.policies.stateless import LeastLoaded, RoundRobin

POLICIES: Mapping[str, Callable[[RoutePolicyConfig], RoutePolicy]] = {
    "least-delay": LeastDelay,
    "doubleq": DoubleQ,
    "round-robin": RoundRobin,
    "per-client-round-robin": PerClientRoundRobin,
    "least-loaded": LeastLoaded,
}
DEFAULT_POLICY = "least-delay"  # ADR 24 says why

__all__ = ["DEFAULT_POLICY", "POLICIES", "Candidates", "RoutePolicy", "RoutePolicyConfig", "RouteRequest"]
