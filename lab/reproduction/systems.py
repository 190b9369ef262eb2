"""The systems that the papers measured: their policies, costs and batching where they differ from this project's."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import ClassVar

from lab.reproduction import slora_policies
from lab.reproduction.baselines import PrebleFixed, SglangLpm
from lab.reproduction.predictors import VtcHalfRight
from lab.reproduction.slora import RevisedSloraBatcher, RevisedSloraQueue, SloraBatcher, SloraQueue
from lab.reproduction.slora_cost import SloraProfiled
from local_worker.core.batcher import Batcher
from local_worker.core.limits import AdmissionMode
from local_worker.core.policies import WHOLE_POLICIES
from local_worker.core.prefix_cache import PrefixCache
from serving.cost import Cost
from simulation.prompts import EOS
from simulation.spec import GLOBAL_POLICIES, LOCAL_POLICIES, ClusterSpec, WorkerSpec
from simulation.step_time import Profile
from throttler.core.profiles import RateLimits

COSTS: Mapping[str, Callable[[], Cost]] = {"slora-profiled": SloraProfiled}
UNLIMITED = 1_000_000
SLORA_NETWORK_SECONDS = (
    0.001  # three one-way delays to the worker; totals from 2 to 6 ms fit the measured admissions equally
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredWorker(WorkerSpec):
    """A worker with the policies and costs of the measured systems."""

    policies: ClassVar = {
        **LOCAL_POLICIES,
        "vtc-half": VtcHalfRight,
        "sglang-lpm": SglangLpm,
        "slora-vtc": slora_policies.SloraVtc,
        "slora-lcf": slora_policies.SloraLcf,
        "slora-predict": slora_policies.SloraPredict,
        "slora-oracle": slora_policies.SloraOracle,
        "slora-half": slora_policies.SloraHalfRight,
    }

    def make_cost(self) -> Cost:
        """Return a measured system's cost, or one that every worker has; raises ValueError with the reason."""
        return COSTS[self.cost]() if self.cost in COSTS else WorkerSpec.make_cost(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class LruWorker(MeasuredWorker):
    """A worker whose cache evicts what was used longest ago, whoever has used it and whatever waits."""

    def make_cache(self) -> PrefixCache:
        """See WorkerSpec."""
        return PrefixCache(self.kv_tokens // self.block_tokens, self.block_tokens, strict_paper=True)


def least_recently_used(worker: WorkerSpec) -> LruWorker:
    """Return `worker` with a cache that evicts what was used longest ago."""
    return LruWorker(**{each.name: getattr(worker, each.name) for each in fields(worker)})


@dataclass(frozen=True, slots=True, kw_only=True)
class SloraWorker(MeasuredWorker):
    """A worker with S-LoRA's batching (lab.reproduction.slora), in its first or in its revised form."""

    policies: ClassVar = {**MeasuredWorker.policies, **WHOLE_POLICIES}

    is_revised: bool = False

    def make_batcher(self) -> Batcher:
        """Make the batcher. The measured pages held one token; ours are larger for speed, so their rounding loss is
        added."""
        pages = self.kv_tokens // self.block_tokens + self.max_running
        cache = PrefixCache(pages, self.block_tokens, strict_paper=True)
        queue, batcher = (RevisedSloraQueue, RevisedSloraBatcher) if self.is_revised else (SloraQueue, SloraBatcher)
        return batcher(queue(self.make_policy(), cache, self.make_cost(), self.limits, self.kv_tokens), [EOS])


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPool(ClusterSpec):
    """A pool with the routing of the measured systems."""

    routes: ClassVar = {**GLOBAL_POLICIES, "preble-fixed": PrebleFixed}


def slora(
    profile: Profile,
    policy: str,
    kv_tokens: int,
    cost: str = "weighted-tokens",
    limit: int | None = None,
    is_revised: bool = False,
) -> ClusterSpec:
    """Return the system behind the VTC measurements; `limit` is the RPM's in calls per minute, and None refuses
    nothing."""
    worker = SloraWorker(
        profile=profile,
        policy=policy,
        cost=cost,
        kv_tokens=kv_tokens,
        block_tokens=4,  # its pages held one token; small pages waste little more
        max_prompt_tokens=2048,
        max_output_tokens=1024,
        token_budget=kv_tokens,
        admission=AdmissionMode.OPTIMISTIC,
        is_revised=is_revised,
    )
    limits = RateLimits(user_per_minute=limit or UNLIMITED, app_per_minute=UNLIMITED)
    return ClusterSpec(
        worker=worker,
        route="round-robin",
        throttle="sliding-rpm" if limit else "none",
        limits=limits,
        network_seconds=SLORA_NETWORK_SECONDS,
    )
