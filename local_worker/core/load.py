"""The load of a worker and the accounts of its clients, in cost units, as schedulers and metrics receive them."""

from typing import NamedTuple

from local_worker.core.block_cache import BlockCache
from local_worker.core.page_report import PageReport
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
    """The load of the engine; fields and units are those of `Load` in scheduler.proto, where `pages` are three."""

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
    pages: PageReport = PageReport()


def load_of(queue: RequestQueue[BlockCache], step_seconds: float) -> EngineLoad:
    """Return the present load, with `step_seconds` as the time of a step."""
    ledger = queue.ledger
    levels = tuple([LevelGapReport(level, gap.worst / MICRO) for level, gap in ledger.gaps.items()])
    lower = lower_pages = 0
    for request in queue.running:
        if request.background:
            lower += 1
            lower_pages += len(request.pages) - request.shared
    return EngineLoad(
        running=len(queue.running),
        waiting=len(queue.waiting),
        kv_tokens_used=queue.cache.tokens_used,
        step_seconds=step_seconds,
        fairness_gap=ledger.worst_gap / MICRO,
        fairness_bound=(queue.policy.bound_micro or 0) / MICRO,
        service_rate=queue.rate.micro_per_second / MICRO,
        recomputed_tokens=ledger.recomputed_tokens,
        prompt_tokens=ledger.prompt_tokens,
        cached_tokens=ledger.cached_tokens,
        levels=levels,
        background_running=lower,
        background_waiting=queue.waiting.background,
        background_kv_tokens=lower_pages * queue.cache.block_tokens,
        preemptions=ledger.preemptions,
        paused_decodes=ledger.paused_decodes,
        deferred_preemptions=ledger.deferred_preemptions,
        pages=queue.cache.report(),
    )


def take_changed_accounts(queue: RequestQueue[BlockCache]) -> list[ClientAccountReport]:
    """Return the accounts that changed since the last call, each with the requests of both classes."""
    reports: dict[str, ClientAccountReport] = {}
    for changed in queue.ledger.take_changed():
        name = changed.name
        if name in reports:
            continue
        service = weighted = waiting = running = 0
        for account in queue.accounts.of_client(name):
            service += account.service
            weighted += account.weighted
            waiting += account.waiting
            running += account.running
        balance = queue.policy.balance(name)
        reports[name] = ClientAccountReport(name, service / MICRO, weighted / MICRO, balance / MICRO, waiting, running)
    return list(reports.values())
