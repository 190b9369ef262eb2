"""Global policies by name."""

from collections.abc import Callable, Mapping

from global_scheduler.core.policies.base import Candidates, RoutePolicy, RoutePolicyConfig, RouteRequest
from global_scheduler.core.policies.doubleq import DoubleQ
from global_scheduler.core.policies.least_loaded import LeastLoaded
from global_scheduler.core.policies.per_client_round_robin import PerClientRoundRobin
from global_scheduler.core.policies.preble import Preble
from global_scheduler.core.policies.round_robin import RoundRobin

POLICIES: Mapping[str, Callable[[RoutePolicyConfig], RoutePolicy]] = {
    "doubleq": DoubleQ,
    "round-robin": RoundRobin,
    "per-client-round-robin": PerClientRoundRobin,
    "least-loaded": LeastLoaded,
    "preble": Preble,
}

__all__ = ["POLICIES", "Candidates", "RoutePolicy", "RoutePolicyConfig", "RouteRequest"]
