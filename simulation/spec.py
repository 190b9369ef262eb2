"""What is simulated: frozen, picklable, named after the options of the real services."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Protocol

from global_scheduler.core.policies import POLICIES as ROUTES
from global_scheduler.core.policies import Policy as RoutePolicy
from global_scheduler.core.policies import PolicyConfig as RouteConfig
from local_worker.core.limits import Admission
from local_worker.core.policies import POLICIES, PolicyConfig, QueuePolicy
from local_worker.core.policies.vtc_predict import VtcOracle
from serving.cost import Cost, parse_cost
from simulation import slora_policies
from simulation.baselines import PrebleFixed, SglangLpm
from simulation.predictors import VtcHalfRight
from simulation.prompts import BLOCK_TOKENS
from simulation.sliding_rpm import SlidingRpm
from simulation.slora_cost import SloraProfiled
from simulation.step_time import Measured, Profile, profile
from throttler.core.profiles import Limits, Profiles
from throttler.core.quota import Quota, Whole
from throttler.core.registry import THROTTLES
from throttler.core.throttle import Caller, Decision, Throttle

# The registries', and what only a simulation has: policies that know the future, a measured system's own ones.
LOCAL_POLICIES: Mapping[str, Callable[[PolicyConfig], QueuePolicy]] = {
    **POLICIES,
    "vtc-oracle": VtcOracle,
    "vtc-half": VtcHalfRight,
    "sglang-lpm": SglangLpm,
    "slora-vtc": slora_policies.SloraVtc,
    "slora-lcf": slora_policies.SloraLcf,
    "slora-predict": slora_policies.SloraPredict,
    "slora-oracle": slora_policies.SloraOracle,
    "slora-half": slora_policies.SloraHalfRight,
}
MEASURED_COSTS: Mapping[str, Callable[[], Cost]] = {"slora-profiled": SloraProfiled}
GLOBAL_POLICIES: Mapping[str, Callable[[RouteConfig], RoutePolicy]] = {**ROUTES, "preble-fixed": PrebleFixed}
UNLIMITED = 1_000_000
SLORA_NETWORK_SECONDS = 0.001  # three ways to the worker: from 2 to 6 ms its measured admissions are met equally well


class Admits(Protocol):
    """What the simulated gateway, which is the only one, asks of a throttle."""

    def admit(self, caller: Caller, protected: bool, overloaded: bool, now: float) -> Decision:
        """See throttler.core.throttle.Throttle."""

    def check_invariants(self) -> None:
        """Raise AssertionError with detail when the state is impossible."""


def _alone(make: Callable[[Profiles, Quota], Throttle], profiles: Profiles) -> Throttle:
    return make(profiles, Whole())


ADMISSIONS: Mapping[str, Callable[[Profiles], Admits]] = {
    **{name: partial(_alone, make) for name, make in THROTTLES.items()},
    "sliding-rpm": SlidingRpm,
}


class Engine(StrEnum):
    """Whose way of batching: this project's, which is SGLang's too, or S-LoRA's (simulation.slora)."""

    FAIRLEAD = "fairlead"
    SLORA = "slora"
    SLORA_REVISED = "slora-revised"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """One worker."""

    profile: Profile | Measured = field(default_factory=lambda: profile("a100-80g", "llama-3.1-8b"))
    policy: str = "dlpm"
    cost: str = "weighted-tokens"
    quantum_tokens: int = 512
    kv_tokens: int = 100_000
    block_tokens: int = BLOCK_TOKENS
    max_running: int = 256
    token_budget: int = 2048
    max_prompt_tokens: int = 65_536
    max_output_tokens: int = 4096
    max_waiting: int = 1_000_000
    admission: Admission = Admission.RESERVE
    strict_paper: bool = False
    engine: Engine = Engine.FAIRLEAD
    decode_run: int = 1  # decoding steps between two looks at the queue; S-LoRA has its own

    def make_cost(self) -> Cost:
        """The configured cost function, or a measured system's own; raises ValueError that says what is wrong."""
        measured = MEASURED_COSTS.get(self.cost)
        return parse_cost(self.cost) if measured is None else measured()

    def make_policy(self) -> QueuePolicy:
        """A queue policy without history; raises KeyError for an unknown name."""
        most = self.kv_tokens
        if self.admission is Admission.OPTIMISTIC:
            most = self.max_running * self.max_output_tokens
        config = PolicyConfig(
            quantum_tokens=self.quantum_tokens,
            cost=self.make_cost(),
            max_input_tokens=self.max_prompt_tokens,
            max_output_tokens=self.max_output_tokens,
            most_output_tokens=most,
            block_tokens=self.block_tokens,
            strict_paper=self.strict_paper,
        )
        return LOCAL_POLICIES[self.policy](config)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """A pool of equal workers behind one scheduler and one gateway. Times in seconds."""

    workers: int = 1
    worker: WorkerSpec = field(default_factory=WorkerSpec)
    route: str = "doubleq"
    route_quantum_tokens: int = 4096
    route_strict_paper: bool = False  # DoubleQ as printed
    index_blocks: int = 1_000_000
    throttle: str = "none"
    limits: Limits = field(default_factory=Limits)
    network_seconds: float = 0.0005  # one way, between any two
    event_lag_seconds: float = 0.0  # added to what workers tell the scheduler
    report_seconds: float = 0.25  # between load reports: as stale as the scheduler's view may be
    stall_timeout: float = 5.0


def slora(
    profile: Profile,
    policy: str,
    kv_tokens: int,
    cost: str = "weighted-tokens",
    limit: int | None = None,
    engine: Engine = Engine.SLORA,
) -> ClusterSpec:
    """The system behind the VTC measurements; `limit` is its RPM's, without which nothing is refused."""
    worker = WorkerSpec(
        profile=profile,
        policy=policy,
        cost=cost,
        kv_tokens=kv_tokens,
        block_tokens=4,  # its pages held one token; small ones waste nearly as little
        max_prompt_tokens=2048,
        max_output_tokens=1024,
        token_budget=kv_tokens,
        admission=Admission.OPTIMISTIC,
        strict_paper=True,
        engine=engine,
    )
    limits = Limits(user_per_minute=limit or UNLIMITED, app_per_minute=UNLIMITED)
    return ClusterSpec(
        worker=worker,
        route="round-robin",
        throttle="sliding-rpm" if limit else "none",
        limits=limits,
        network_seconds=SLORA_NETWORK_SECONDS,
    )
