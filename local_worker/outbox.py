"""What one turn of the engine loop has to say to everybody: gateways, schedulers, metrics."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from fairlead.v1 import common_pb2, scheduler_pb2, worker_pb2
from local_worker.core.batch import TokenLogprobs
from local_worker.core.batcher import Batcher
from local_worker.core.prefix_cache import Link
from serving.cost import MICRO

Sink = Hashable  # whoever receives a job's events: one per gateway session


class Service(NamedTuple):
    """One client's account as of now, in cost units; `balance` is the policy's."""

    client: str
    service: float
    weighted: float
    balance: float
    waiting: int
    running: int


@dataclass(slots=True)
class Outbox:
    """What one turn of the loop has to say."""

    events: dict[Sink, worker_pb2.StepEvents] = field(default_factory=dict)
    accepted: list[scheduler_pb2.AcceptedRequest] = field(default_factory=list)
    ended: list[scheduler_pb2.RequestEnd] = field(default_factory=list)
    cached: tuple[Link, ...] = ()
    evicted: tuple[int, ...] = ()
    load: scheduler_pb2.Load = field(default_factory=scheduler_pb2.Load)  # without services
    services: list[Service] = field(default_factory=list)  # of clients whose accounts changed
    oldest_queued_at: float | None = None  # the loop's clock
    healthy: bool = True

    def to(self, sink: Sink) -> worker_pb2.StepEvents:
        """The message for `sink`."""
        return self.events.setdefault(sink, worker_pb2.StepEvents())


def load_of(batcher: Batcher, step_seconds: float) -> scheduler_pb2.Load:
    """How loaded the worker is; without services."""
    prompt_tokens, cached_tokens = batcher.prompt_tokens
    return scheduler_pb2.Load(
        running=batcher.running,
        waiting=batcher.waiting,
        kv_tokens_used=batcher.kv_tokens_used,
        step_seconds=step_seconds,
        fairness_gap=batcher.fairness_gap / MICRO,
        fairness_bound=(batcher.policy.bound_micro or 0) / MICRO,
        service_rate=batcher.service_rate / MICRO,
        recomputed_tokens=batcher.recomputed_tokens,
        prompt_tokens=prompt_tokens,
        cached_tokens=cached_tokens,
    )


def services_of(batcher: Batcher) -> list[Service]:
    """The accounts that changed since the last call."""
    return [
        Service(
            account.client,
            account.service / MICRO,
            account.weighted / MICRO,
            balance / MICRO,
            account.waiting,
            account.running,
        )
        for account, balance in batcher.take_changed_accounts()
    ]


def to_proto(logprobs: TokenLogprobs) -> common_pb2.TokenLogprobs:
    """On the wire."""
    return common_pb2.TokenLogprobs(
        logprob=logprobs.logprob,
        top_ids=[token for token, _ in logprobs.top],
        top_logprobs=[value for _, value in logprobs.top],
    )
