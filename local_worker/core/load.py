"""The load of a worker and the accounts of its clients, in cost units, as schedulers and metrics receive them."""

from collections.abc import Sequence
from typing import NamedTuple

from local_worker.core.accounts.account import Account
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
    background_running: int = 0
    background_waiting: int = 0
    background_kv_tokens: int = 0
    preemptions: int = 0
    paused_decodes: int = 0
    deferred_preemptions: int = 0


def load_of(queue: RequestQueue[BlockCache], step_seconds: float) -> EngineLoad:
    """Return the present load, with `step_seconds` as the time of a step."""
    ledger = queue.ledger
    gaps = ledger.worst_gaps
    lower = [request for request in queue.running if request.background]
    lower_pages = sum(len(request.pages) - request.shared for request in lower)
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
        background_running=len(lower),
        background_waiting=queue.waiting.background,
        background_kv_tokens=lower_pages * queue.cache.block_tokens,
        preemptions=ledger.preemptions,
        paused_decodes=ledger.paused_decodes,
        deferred_preemptions=ledger.deferred_preemptions,
    )


def take_changed_accounts(queue: RequestQueue[BlockCache]) -> list[ClientAccountReport]:
    """Return the accounts that changed since the last call, each with the requests of both classes."""
    names = dict.fromkeys(account.name for account in queue.ledger.take_changed())
    return [_report(name, queue.accounts.of_client(name), queue.policy.balance(name)) for name in names]


def _report(client: str, accounts: Sequence[Account], balance: int) -> ClientAccountReport:
    return ClientAccountReport(
        client,
        sum(account.service for account in accounts) / MICRO,
        sum(account.weighted for account in accounts) / MICRO,
        balance / MICRO,
        sum(account.waiting for account in accounts),
        sum(account.running for account in accounts),
    )
