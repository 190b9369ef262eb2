"""Constructor of a simulated scheduler's core."""

from global_scheduler.core.block_index import BlockIndex
from global_scheduler.core.dispatcher import Dispatcher
from global_scheduler.core.fleet import Fleet
from global_scheduler.core.policies import RoutePolicyConfig
from serving.cost import WeightedTokens
from simulation.spec import ClusterSpec


def make_dispatcher(spec: ClusterSpec) -> Dispatcher:
    """Make the dispatcher that `spec` describes, without workers."""
    config = RoutePolicyConfig(spec.route_quantum_tokens, WeightedTokens(), spec.route_strict_paper)
    policy, below = (spec.routes[spec.route](config) for _ in range(2))
    return Dispatcher(policy, BlockIndex(spec.index_blocks), Fleet(spec.stall_timeout), below)
