"""The load of a worker and the accounts of its clients, in cost units, as schedulers and metrics receive them."""

from typing import NamedTuple

from local_worker.core.block_cache import BlockCache
from local_worker.core.queue import RequestQueue
from serving.cost import MICRO


class ClientAccountReport(NamedTuple):
    """The account of one client in cost units; `balance` is the policy's."""

    client: str
    service: float
    weighted: float
    balance: float
    waiting: int
    running: int


class LevelGapReport(NamedTuple):
    """The largest gap between siblings of one level of fairness, in cost units."""

    level: str
    gap: float


class EngineLoad(NamedTuple):
    """The load of the engine; fields and units are those of `Load` in scheduler.proto."""

    running: int = 0
    waiting: int = 0
    kv_tokens_used: int = 0
    step_seconds: float = 0.0
    fairness_gap: float = 0.0
    fairness_bound: float = 0.0
    service_rate: float = 0.0
    recomputed_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    levels: tuple[LevelGapReport, ...] = ()


def load_of(queue: RequestQueue[BlockCache], step_seconds: float) -> EngineLoad:
    """Return the present load, with `step_seconds` as the time of a step."""
    ledger = queue.ledger
    gaps = ledger.worst_gaps
    return EngineLoad(
        running=len(queue.running),
        waiting=len(queue.waiting),
        kv_tokens_used=queue.cache.tokens_used,
        step_seconds=step_seconds,
        fairness_gap=max([gap for _, gap in gaps]) / MICRO,
        fairness_bound=(queue.policy.bound_micro or 0) / MICRO,
        service_rate=queue.service_rate / MICRO,
        recomputed_tokens=ledger.recomputed_tokens,
        prompt_tokens=ledger.prompt_tokens,
        cached_tokens=ledger.cached_tokens,
        levels=tuple([LevelGapReport(level, gap / MICRO) for level, gap in gaps]),
    )


def take_changed_accounts(queue: RequestQueue[BlockCache]) -> list[ClientAccountReport]:
    """Return the accounts that changed since the last call."""
    return [
        ClientAccountReport(
            account.name,
            account.service / MICRO,
            account.weighted / MICRO,
            queue.policy.balance(account.name) / MICRO,
            account.waiting,
            account.running,
        )
        for account in queue.ledger.take_changed()
    ]
