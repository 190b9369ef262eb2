"""The results of one turn of the engine loop, for gateways, schedulers and metrics."""

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from local_worker.attempt import AttemptAccepted, AttemptEnded, AttemptEvents, AttemptStarted
from local_worker.core.block_cache import BlockCache
from local_worker.core.job import Job, JobEnded, JobEvents
from local_worker.core.queue import RequestQueue
from serving.blocks import Link
from serving.cost import MICRO, WEIGHT_ONE

Sink = Hashable  # receiver of a job's events: one for each gateway session


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


@dataclass(slots=True, kw_only=True)  # made in every step; a frozen dataclass takes three times as long to make
class StepEvents:
    """All results of one turn of the engine loop."""

    events: dict[Sink, AttemptEvents] = field(default_factory=dict)
    accepted: list[AttemptAccepted] = field(default_factory=list)
    cached: tuple[Link, ...] = ()
    evicted: tuple[int, ...] = ()
    load: EngineLoad = field(default_factory=EngineLoad)
    services: list[ClientAccountReport] = field(default_factory=list)  # accounts that changed
    oldest_queued_at: float | None = None  # seconds of the monotonic clock
    healthy: bool = True

    @property
    def ended(self) -> list[AttemptEnded]:
        """The attempts that have ended, of all sinks."""
        return [end for events in self.events.values() for end in events.ended]


def make_step_events(
    events: JobEvents[Sink], queue: RequestQueue[BlockCache], step_seconds: float, healthy: bool
) -> StepEvents:
    """Return the results of a turn: `events`, and the changes of the queue since the last call."""
    cached, evicted = queue.cache.take_events()
    return StepEvents(
        events=_by_sink(events),
        accepted=[_accepted(job, queue.cache.block_tokens) for job in events.accepted],
        cached=cached,
        evicted=evicted,
        load=_load(queue, step_seconds),
        services=_services(queue),
        oldest_queued_at=queue.waiting.oldest_since,
        healthy=healthy,
    )


def _by_sink(events: JobEvents[Sink]) -> dict[Sink, AttemptEvents]:
    by_sink: defaultdict[Sink, AttemptEvents] = defaultdict(AttemptEvents)
    for job, service in events.started:
        request = job.request
        by_sink[job.owner].started.append(AttemptStarted(request.id, job.attempt, request.cached, service))
    for job, output in events.tokens:
        by_sink[job.owner].tokens.append(output)
    for end in events.ended:
        by_sink[end.job.owner].ended.append(_attempt_ended(end))
    return dict(by_sink)


def _attempt_ended(end: JobEnded[Sink]) -> AttemptEnded:
    job, request = end.job, end.job.request
    return AttemptEnded(
        request.id,
        job.attempt,
        end.outcome,
        end.reason,
        end.message,
        end.text,
        end.stop_string,
        prompt_tokens=request.prompt_tokens,
        cached_tokens=request.cached,
        output_tokens=request.output_tokens,
        service=request.service,
        queued_at=job.queued_at,
        started_at=job.started_at,
        first_token_at=job.first_token_at,
        ended_at=job.ended_at,
    )


def _accepted(job: Job[Sink], block_tokens: int) -> AttemptAccepted:
    request = job.request
    return AttemptAccepted(
        request_id=request.id,
        attempt=job.attempt,
        client=request.client,
        model=request.model,
        prompt_tokens=request.prompt_tokens - request.seed_position,
        weight=request.weight / WEIGHT_ONE,
        cached_tokens=request.matched_blocks * block_tokens,
    )


def _load(queue: RequestQueue[BlockCache], step_seconds: float) -> EngineLoad:
    """Return the load of the engine, with amounts of service in cost units."""
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


def _services(queue: RequestQueue[BlockCache]) -> list[ClientAccountReport]:
    """Return reports of the accounts that changed since the last call."""
    return [
        ClientAccountReport(
            account.name,
            account.service / MICRO,
            account.weighted / MICRO,
            balance / MICRO,
            account.waiting,
            account.running,
        )
        for account, balance in queue.take_changed_accounts()
    ]
