"""Baseline policies of the literature that no service offers; none has a bound. The simulator compares with them."""

from collections.abc import Callable, Mapping

from global_scheduler.core.policies import RoutePolicy, RoutePolicyConfig
from local_worker.core.policies import QueuePolicy, QueuePolicyConfig
from simulation.baselines.lcf import Lcf
from simulation.baselines.lpm import Lpm
from simulation.baselines.preble import Preble
from simulation.baselines.vtc_predict import VtcOracle, VtcPredict
from simulation.baselines.wsc import Wsc

QUEUE_BASELINES: Mapping[str, Callable[[QueuePolicyConfig], QueuePolicy]] = {
    "lcf": Lcf,
    "lpm": Lpm,
    "vtc-predict": VtcPredict,
    "vtc-oracle": VtcOracle,
    "wsc": Wsc,
}
ROUTE_BASELINES: Mapping[str, Callable[[RoutePolicyConfig], RoutePolicy]] = {"preble": Preble}
