"""Global policies by name."""

from collections.abc import Callable, Mapping

from global_scheduler.core.policies.base import Policy, PolicyConfig, Request
from global_scheduler.core.policies.doubleq import DoubleQ
from global_scheduler.core.policies.least_loaded import LeastLoaded
from global_scheduler.core.policies.round_robin import RoundRobin

POLICIES: Mapping[str, Callable[[PolicyConfig], Policy]] = {
    "doubleq": DoubleQ,
    "round-robin": RoundRobin,
    "least-loaded": LeastLoaded,
}

__all__ = ["POLICIES", "Policy", "PolicyConfig", "Request"]
