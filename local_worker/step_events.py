"""What one turn of the engine loop has to say to everybody, as messages: to gateways, schedulers, metrics."""

import time
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from fairlead.token_ids import pack_ids
from fairlead.v1 import common_pb2, scheduler_pb2, worker_pb2
from local_worker.core.batch import SampledLogprobs
from local_worker.core.batcher import Batcher
from local_worker.core.job import Job, JobEnded, JobEvents
from local_worker.core.prefix_cache import Link
from serving.cost import MICRO, WEIGHT_ONE

Sink = Hashable  # whoever receives a job's events: one per gateway session
NANO = 1_000_000_000


class ClientAccountReport(NamedTuple):
    """One client's account as of now, in cost units; `balance` is the policy's."""

    client: str
    service: float
    weighted: float
    balance: float
    waiting: int
    running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvents:
    """What one turn of the loop has to say."""

    events: dict[Sink, worker_pb2.StepEvents] = field(default_factory=dict)
    accepted: list[scheduler_pb2.AcceptedRequest] = field(default_factory=list)
    ended: list[scheduler_pb2.RequestEnd] = field(default_factory=list)
    cached: tuple[Link, ...] = ()
    evicted: tuple[int, ...] = ()
    load: scheduler_pb2.Load = field(default_factory=scheduler_pb2.Load)  # without services
    services: list[ClientAccountReport] = field(default_factory=list)  # of clients whose accounts changed
    oldest_queued_at: float | None = None  # the loop's clock
    healthy: bool = True


def make_outbox(events: JobEvents[Sink], batcher: Batcher, step_seconds: float, healthy: bool) -> StepEvents:
    """Return the messages for `events`, with what has changed in the batcher since the last call."""
    cached, evicted = batcher.cache.take_events()
    return StepEvents(
        events=_by_sink(events),
        accepted=[_accepted(job) for job in events.accepted],
        ended=[_request_end(end.job) for end in events.ended],
        cached=cached,
        evicted=evicted,
        load=_load(batcher, step_seconds),
        services=_services(batcher),
        oldest_queued_at=batcher.oldest_queued_at,
        healthy=healthy,
    )


def _by_sink(events: JobEvents[Sink]) -> dict[Sink, worker_pb2.StepEvents]:
    messages: defaultdict[Sink, worker_pb2.StepEvents] = defaultdict(worker_pb2.StepEvents)
    for job, service in events.started:
        messages[job.owner].started.add(
            request_id=job.request.id,
            attempt=job.attempt,
            cached_tokens=job.request.cached,
            service=service / MICRO,
        )
    for job, tokens, text, logprobs, service in events.tokens:
        messages[job.owner].tokens.add(
            request_id=job.request.id,
            attempt=job.attempt,
            token_ids=pack_ids(tokens),
            text=text,
            logprobs=[_logprobs(logprobs)] if logprobs else (),
            service=service / MICRO,
        )
    for end in events.ended:
        _add_ended(messages[end.job.owner], end)
    return dict(messages)


def _add_ended(message: worker_pb2.StepEvents, end: JobEnded[Sink]) -> None:
    job = end.job
    message.ended.add(
        request_id=job.request.id,
        attempt=job.attempt,
        outcome=end.outcome.value,
        finish_reason=end.reason.value if end.reason is not None else 0,
        message=end.message,
        usage=_usage(job),
        timings=_timings(job),
        text=end.text,
    )


def _usage(job: Job[Sink]) -> common_pb2.Usage:
    """Tokens of this attempt."""
    request = job.request
    return common_pb2.Usage(
        prompt_tokens=request.prompt_tokens,
        cached_tokens=request.cached,
        output_tokens=request.output_tokens,
        service=request.service / MICRO,
    )


def _timings(job: Job[Sink]) -> common_pb2.Timings:
    """The worker's part of the call's timings. All are read from one clock, so that they are in order."""
    unix = time.time_ns() - time.monotonic_ns()

    def at(seconds: float | None) -> int:
        return unix + int(seconds * NANO) if seconds is not None else 0

    return common_pb2.Timings(
        queued=at(job.queued_at),
        scheduled=at(job.started_at),
        first_token=at(job.first_token_at),
        finished=at(job.ended_at),
    )


def _accepted(job: Job[Sink]) -> scheduler_pb2.AcceptedRequest:
    request = job.request
    return scheduler_pb2.AcceptedRequest(
        request_id=request.id,
        attempt=job.attempt,
        client=request.client,
        prompt_tokens=request.prompt_tokens - request.seed_position,
        weight=request.weight / WEIGHT_ONE,
        model=request.model,
    )


def _request_end(job: Job[Sink]) -> scheduler_pb2.RequestEnd:
    return scheduler_pb2.RequestEnd(
        request_id=job.request.id,
        attempt=job.attempt,
        started=job.started_at is not None,
        output_tokens=job.request.output_tokens,
    )


def _load(batcher: Batcher, step_seconds: float) -> scheduler_pb2.Load:
    """How loaded the worker is; without services."""
    ledger = batcher.ledger
    return scheduler_pb2.Load(
        running=batcher.running,
        waiting=batcher.waiting,
        kv_tokens_used=batcher.cache.tokens_used,
        step_seconds=step_seconds,
        fairness_gap=batcher.fairness_gap / MICRO,
        fairness_bound=(batcher.policy.bound_micro or 0) / MICRO,
        service_rate=batcher.service_rate / MICRO,
        recomputed_tokens=ledger.recomputed_tokens,
        prompt_tokens=ledger.prompt_tokens,
        cached_tokens=ledger.cached_tokens,
    )


def _services(batcher: Batcher) -> list[ClientAccountReport]:
    """The accounts that changed since the last call."""
    return [
        ClientAccountReport(
            account.client,
            account.service / MICRO,
            account.weighted / MICRO,
            balance / MICRO,
            account.waiting,
            account.running,
        )
        for account, balance in batcher.take_changed_accounts()
    ]


def _logprobs(logprobs: SampledLogprobs) -> common_pb2.TokenLogprobs:
    return common_pb2.TokenLogprobs(
        logprob=logprobs.logprob,
        top_ids=[token for token, _ in logprobs.top],
        top_logprobs=[value for _, value in logprobs.top],
    )
