"""A dispatcher with made-up workers and requests."""

from typing import Any

from global_scheduler.core.block_index import BlockIndex
from global_scheduler.core.dispatcher import Assignment, Dispatcher
from global_scheduler.core.fleet import Fleet, Member, WorkerIdentity
from global_scheduler.core.policies import DEFAULT_POLICY, RoutePolicyConfig, RouteRequest
from serving.cost import WeightedTokens
from simulation.spec import GLOBAL_POLICIES

QUANTUM = 100
CONFIG = RoutePolicyConfig(QUANTUM, WeightedTokens())
STALL = 5


def identity(worker: str, *models: str, instance: str = "", max_running: int = 10) -> WorkerIdentity:
    """A worker of `models`, by default of `m` alone."""
    revisions = dict.fromkeys(models or ("m",), "")
    return WorkerIdentity(
        worker, instance or worker, f"{worker}:1", revisions, 16, kv_tokens=1000, max_running=max_running
    )


def request(name: str, **fields: Any) -> RouteRequest:
    """One of 10 tokens by ann, unless said otherwise."""
    values: dict[str, Any] = {
        "attempt": 1,
        "client": "ann",
        "model": "m",
        "digests": b"",
        "prompt_tokens": 10,
        "weight": 1000,
    }
    return RouteRequest(name, **(values | fields))


def dispatcher(
    policy: str = DEFAULT_POLICY, workers: tuple[str, ...] = ("a", "b"), config: RoutePolicyConfig = CONFIG
) -> tuple[Dispatcher, list[Member]]:
    made = Dispatcher(GLOBAL_POLICIES[policy](config), BlockIndex(1000), Fleet(STALL))
    return made, [made.attached(identity(worker), (), now=0) for worker in workers]


def placed(assignment: Assignment | None) -> str:
    assert assignment is not None
    return assignment.member.identity.worker
