"""Baseline policies of the literature that no service offers. The simulator compares with them."""

from collections.abc import Callable, Mapping

from global_scheduler.core.policies import RoutePolicy, RoutePolicyConfig
from local_worker.core.policies import QueuePolicy, QueuePolicyConfig
from local_worker.core.policies.vtc_predict import VtcOracle
from simulation.baselines.lcf import Lcf
from simulation.baselines.lmetric import Lmetric
from simulation.baselines.lpm import Lpm
from simulation.baselines.preble import Preble

QUEUE_BASELINES: Mapping[str, Callable[[QueuePolicyConfig], QueuePolicy]] = {
    "lcf": Lcf,
    "lpm": Lpm,
    "vtc-oracle": VtcOracle,
}
ROUTE_BASELINES: Mapping[str, Callable[[RoutePolicyConfig], RoutePolicy]] = {"preble": Preble, "lmetric": Lmetric}
