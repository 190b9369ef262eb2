"""Events of a worker's requests, as their owners and the schedulers receive them.

The events of one request happen in this order: it is accepted, it starts, it generates tokens any number of times, it
ends. Those between the first and the last may be missing. They are read on another thread than the one that made them:
an event holds what changes afterwards, and of its request only what cannot change any more may be read.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from fairlead.outcomes import FinishReason, Outcome
from local_worker.core.load import ClientAccountReport, EngineLoad
from local_worker.core.logprobs import SpelledLogprobs
from local_worker.core.request import Request
from serving.blocks import Link
from serving.kv_events.core.block_rehash import TierChange


class RequestAccepted(NamedTuple):
    """The acceptance of a request, of whose prompt `cached_tokens` were cached at that time, or are computed."""

    request: Request
    cached_tokens: int


class RequestStarted(NamedTuple):
    """The first entry of a request into the running batch; by then it had received `service` micro-units."""

    request: Request
    service: int


class RequestTokens(NamedTuple):  # the only object that is made for each token between the batcher and the message
    """New `tokens` of a request, and the `text` that they release."""

    request: Request
    tokens: Sequence[int]
    text: str
    logprobs: Sequence[SpelledLogprobs]  # one per token; empty unless the caller requested them
    service: int  # received by the request so far, in micro-units of cost
    prompt_logprobs: Sequence[SpelledLogprobs] = ()  # with the first token: one per token of the prompt


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
    """Return consecutive tokens of one request, at least one event, as one event."""
    if len(tokens) == 1:
        return tokens[0]
    requests, ids, texts, logprobs, services, prompts = zip(*tokens, strict=True)
    scores = [*chain(*prompts)]
    return RequestTokens(requests[0], [*chain(*ids)], "".join(texts), [*chain(*logprobs)], services[-1], scores)
