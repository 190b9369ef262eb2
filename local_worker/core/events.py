"""What a worker tells: events of its requests to their owners and the schedulers, the load and the clients' accounts.

The events of one request happen in this order: it is accepted, it starts, it generates tokens any number of times, it
ends. Those between the first and the last may be missing. They are read on another thread than the one that made them:
an event holds what changes afterwards, and of its request only what cannot change any more may be read.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from fairlead.outcomes import FinishReason, Outcome
from local_worker.core.batch import SampledLogprobs
from local_worker.core.block_cache import BlockCache
from local_worker.core.page_report import PageReport
from local_worker.core.queue import RequestQueue
from local_worker.core.request import Request
from serving.blocks import Link
from serving.cost import MICRO
from serving.kv_events.core.block_rehash import TierChange


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


class RequestAccepted(NamedTuple):
    """The acceptance of a request, of whose prompt `cached_tokens` were cached at that time, or are computed."""

    request: Request
    cached_tokens: int


class RequestStarted(NamedTuple):
    """The first entry of a request into the running batch; by then it had received `service` micro-units."""

    request: Request
    service: int


@dataclass(slots=True)  # the only object that is made for each token between the engine and the message
class RequestTokens:
    """New `tokens` of a request: after a commit, one token per step of an engine.

    `finish` is the reason why the output ends with the last of them; None while it goes on. An output that cannot go on
    has no new tokens, and a `failure` that says why. The machine adds the `text` that the tokens release.
    """

    request: Request
    tokens: Sequence[int]
    finish: FinishReason | None = None
    logprobs: Sequence[SampledLogprobs] = ()  # one per token; empty unless the caller requested them
    # With the first token, if the caller requested them: those of the prompt's tokens but the first, which has none.
    prompt_logprobs: Sequence[SampledLogprobs] | None = None
    failure: str = ""
    text: str = ""
    service: int = 0  # received by the request so far, in micro-units of cost (WorkerMachine)


class RequestEnded(NamedTuple):
    """The end of a request, with the `text` that was still held back; `reason` is given only for COMPLETED.

    `stop_string` is the one that ended the output; it is empty if none did.
    """

    request: Request
    outcome: Outcome
    reason: FinishReason | None = None
    message: str = ""
    text: str = ""
    stop_string: str = ""


@dataclass(slots=True)
class RequestEvents:
    """Events of several requests. Within a field they are in order of time."""

    accepted: list[RequestAccepted] = field(default_factory=list)
    started: list[RequestStarted] = field(default_factory=list)
    computed: list[Request] = field(default_factory=list)  # their prompts: a first token is there
    tokens: list[RequestTokens] = field(default_factory=list)
    ended: list[RequestEnded] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)  # made in every step; a frozen dataclass takes three times as long to make
class WorkerUpdate:
    """All that has changed at a worker since its last update."""

    events: RequestEvents = field(default_factory=RequestEvents)
    cached: tuple[Link, ...] = ()
    evicted: tuple[int, ...] = ()
    slower: Sequence[TierChange] = ()  # in the memories of an engine that has slower ones
    load: EngineLoad | None = None  # None: it follows with a later update
    accounts: list[ClientAccountReport] = field(default_factory=list)  # those that changed; they come with the load
    oldest_queued_at: float | None = None  # seconds, on the clock of the worker's `now`; it comes with the load
    healthy: bool = True


def joined(tokens: Sequence[RequestTokens]) -> RequestTokens:
    first, last = tokens[0], tokens[-1]
    if first is last:
        return first
    return RequestTokens(
        first.request,
        [*chain.from_iterable(map(attrgetter("tokens"), tokens))],
        last.finish,
        [*chain.from_iterable(map(attrgetter("logprobs"), tokens))],
        first.prompt_logprobs,
        text="".join(map(attrgetter("text"), tokens)),
        service=last.service,
    )
