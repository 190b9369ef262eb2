"""Specifications of simulated systems: frozen, picklable, with the names of the real services' options."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from global_scheduler.core.policies import DEFAULT_POLICY, RoutePolicy, RoutePolicyConfig
from global_scheduler.core.policies import POLICIES as ROUTES
from local_worker.core.accounts.tree import FairnessLevels
from local_worker.core.batcher import Batcher
from local_worker.core.limits import SIZES, BatchLimits, check_sizes
from local_worker.core.limits import AdmissionMode as AdmissionMode
from local_worker.core.policies import POLICIES, WHOLE_POLICIES, ClassedPolicy, QueuePolicy, QueuePolicyConfig
from local_worker.core.prefix_cache import PrefixCache
from local_worker.core.queue import RequestQueue
from serving.cost import Cost, parse_cost
from simulation.baselines import QUEUE_BASELINES, ROUTE_BASELINES
from simulation.prompts import BLOCK_TOKENS, EOS
from simulation.sliding_rpm import SlidingRpm
from simulation.step_time import MeasuredProfile, Profile, profile
from throttler.core.profiles import Profiles, RateLimits
from throttler.core.throttle import WINDOW_SECONDS, ThrottleRule
from throttler.core.throttles import THROTTLES
from throttler.core.windows import Quota

SERVED_POLICIES, SERVED_ROUTES = tuple(POLICIES), tuple(ROUTES)  # those that real workers and schedulers offer
LOCAL_POLICIES: Mapping[str, Callable[[QueuePolicyConfig], QueuePolicy]] = {**POLICIES, **QUEUE_BASELINES}
GLOBAL_POLICIES: Mapping[str, Callable[[RoutePolicyConfig], RoutePolicy]] = {**ROUTES, **ROUTE_BASELINES}


ADMISSIONS: Mapping[str, Callable[[Profiles, Quota, float], ThrottleRule]] = {**THROTTLES, "sliding-rpm": SlidingRpm}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """The specification of one worker, whose policies, costs and batching a subclass can extend."""

    policies: ClassVar = LOCAL_POLICIES

    profile: Profile | MeasuredProfile = field(default_factory=lambda: profile("a100-80g", "llama-3.1-8b"))
    policy: str = "dlpm"
    cost: str = "weighted-tokens"
    fairness_levels: str = "tenant,user"
    quantum_tokens: int = 512
    preemption_quanta: int = 16
    kv_tokens: int = 100_000
    block_tokens: int = BLOCK_TOKENS
    max_running: int = 256
    token_budget: int = 2048
    max_prompt_tokens: int = 65_536
    max_output_tokens: int = 4096
    max_waiting: int = 1_000_000
    admission: AdmissionMode = AdmissionMode.RESERVE
    strict_paper: bool = False
    decode_run: int = 1  # decoding steps per scheduling decision

    def check(self) -> None:
        """Raise ValueError for sizes, levels or a cost function with which no worker would start."""
        self.make_cost()
        try:
            FairnessLevels.parse(self.fairness_levels)
        except ValueError as error:
            raise ValueError(f"fairness_levels: {error}") from error
        check_sizes(
            max_running=self.max_running,
            token_budget=self.token_budget,
            kv_tokens=self.kv_tokens,
            block_tokens=self.block_tokens,
        )

    def make_cost(self) -> Cost:
        """Make the configured cost function; raises ValueError with the reason when its name is wrong."""
        return parse_cost(self.cost)

    def make_policy(self) -> QueuePolicy:
        """Make a queue policy without history; raises KeyError for an unknown name."""
        return self._policies[self.policy](self._policy_config())

    @property
    def _policies(self) -> Mapping[str, Callable[[QueuePolicyConfig], QueuePolicy]]:
        return {**self.policies, **WHOLE_POLICIES} if self.strict_paper else self.policies

    def _policy_config(self) -> QueuePolicyConfig:
        most = self.kv_tokens
        if self.admission is AdmissionMode.OPTIMISTIC:
            most = self.max_running * self.max_output_tokens
        return QueuePolicyConfig(
            quantum_tokens=self.quantum_tokens,
            cost=self.make_cost(),
            max_input_tokens=self.max_prompt_tokens,
            max_output_tokens=self.max_output_tokens,
            most_output_tokens=most,
            block_tokens=self.block_tokens,
            strict_paper=self.strict_paper,
            levels=FairnessLevels.parse(self.fairness_levels),
            most_debt_tokens=self.preemption_quanta * self.quantum_tokens,
            most_uncharged_tokens=self.max_running * self.decode_run,
        )

    def make_batcher(self) -> Batcher:
        """Make a batcher with an empty queue, batch and cache."""
        policy = ClassedPolicy(self._policies[self.policy], self._policy_config())
        queue = RequestQueue(policy, self.make_cache(), self.make_cost(), self.limits)
        return Batcher(queue, [EOS], self.decode_run)

    def make_cache(self) -> PrefixCache:
        return PrefixCache(self.kv_tokens // self.block_tokens, self.block_tokens, self.strict_paper)

    @property
    def limits(self) -> BatchLimits:
        return BatchLimits(
            max_running=self.max_running,
            token_budget=self.token_budget,
            max_prompt_tokens=self.max_prompt_tokens,
            max_waiting=self.max_waiting,
            max_waiting_per_client=self.max_waiting,
            admission=self.admission,
        )


# The defaults of a real worker on a GPU.
SERVED = WorkerSpec(max_running=SIZES["cuda"].max_running, token_budget=SIZES["cuda"].token_budget)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """A pool of workers behind one scheduler and one gateway; times are in seconds.

    Workers are equal but for `slowdowns`, which cycle over the workers: the factor by which a worker's steps last
    longer.
    """

    routes: ClassVar = GLOBAL_POLICIES

    workers: int = 1
    worker: WorkerSpec = field(default_factory=WorkerSpec)
    slowdowns: tuple[float, ...] = (1.0,)
    route: str = DEFAULT_POLICY
    route_quantum_tokens: int = 4096  # of DoubleQ
    route_strict_paper: bool = False  # DoubleQ as printed
    index_blocks: int = 1_000_000
    throttle: str = "none"
    reports_memory: bool = True  # gateways know how many tokens of KV cache the pool has
    limits: RateLimits = field(default_factory=RateLimits)
    window_seconds: float = WINDOW_SECONDS  # in which the limits count: a minute, unless time is to pass faster
    max_streams_per_client: int = 1_000_000  # open calls, as a gateway limits them
    max_streams: int = 1_000_000
    network_seconds: float = 0.0005  # one-way delay between any two processes
    event_lag_seconds: float = 0.0  # extra delay of the workers' events to the scheduler
    report_seconds: float = 0.25  # between load reports, the largest age of the scheduler's data
    stall_timeout: float = 5.0
    tokens_per_message: int = 1  # per message to clients; a gateway's default is 4
    reader_seconds: float = 60.0  # a call whose last messages stay unread for this long is aborted
