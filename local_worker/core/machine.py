"""A worker's state machine: the way of each request from its submission, through the running batch, to exactly one end.

A driver passes in what happens, with the time, and takes an update after every turn. Three drivers do so: the engine
loop on its thread, the adapter on the event loop, and the simulator under virtual time. docs/architecture.md is drawn
from the table of a request's states, TRANSITIONS. What it does not show:

- A state is no field of a request: the collection that holds the request says in which state it is.
- A request ends once, with one RequestEnded. An ended request is in no collection, and ignores all events.
- A running request whose mask is late stays in the batch and misses steps (LateMasks).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

from fairlead.errors import FairleadError
from fairlead.outcomes import FinishReason, Outcome
from local_worker.core.block_cache import BlockCache
from local_worker.core.events import (
    RequestAccepted,
    RequestEnded,
    RequestEvents,
    RequestStarted,
    RequestTokens,
    WorkerUpdate,
    load_of,
    take_changed_accounts,
)
from local_worker.core.queue import RequestQueue
from local_worker.core.request import Request


class RequestState(StrEnum):
    """The state of a request between its arrival at a worker and its end."""

    COMPILING = "compiling"  # the constraint of its output is being compiled
    WAITING = "waiting"
    RUNNING = "running"  # in the running batch; it has pages
    ENDED = "ended"


class RequestEvent(StrEnum):
    """What can happen to a request at a worker."""

    COMPILED = "compiled"
    REFUSED = "refused"  # its constraint cannot be compiled, or the queue is full
    DROPPED = "dropped"  # from a full queue, for another request
    ADMITTED = "admitted"
    PREEMPTED = "preempted"  # pages ran out
    ADVANCED = "advanced"
    COMPLETED = "completed"
    ABORTED = "aborted"
    EXPIRED = "expired"
    FAILED = "failed"  # its step, its output or its engine


COMPILING, WAITING, RUNNING, ENDED = RequestState

HOLDERS: Mapping[RequestState, str] = {
    COMPILING: "`Compilations` (`local_worker/compilations.py`)",
    WAITING: "`RequestQueue.waiting`, and the policy's queue",
    RUNNING: "`RequestQueue.running`",
    ENDED: "none",
}

TRANSITIONS: Mapping[RequestState, Mapping[RequestEvent, RequestState]] = {
    COMPILING: {
        RequestEvent.COMPILED: WAITING,
        RequestEvent.REFUSED: ENDED,
        RequestEvent.ABORTED: ENDED,
    },
    WAITING: {
        RequestEvent.ADMITTED: RUNNING,
        RequestEvent.REFUSED: ENDED,
        RequestEvent.DROPPED: ENDED,
        RequestEvent.ABORTED: ENDED,
        RequestEvent.EXPIRED: ENDED,
        RequestEvent.FAILED: ENDED,
    },
    RUNNING: {
        RequestEvent.ADVANCED: RUNNING,
        RequestEvent.PREEMPTED: WAITING,
        RequestEvent.COMPLETED: ENDED,
        RequestEvent.ABORTED: ENDED,
        RequestEvent.EXPIRED: ENDED,
        RequestEvent.FAILED: ENDED,
    },
    ENDED: {},
}


STEP_AVERAGE = 0.1  # weight of the newest step in the moving average
# Between two reports of the load and the accounts, while nothing but tokens comes: no scheduler is told more often, and
# the accounts of all running requests would cost a step more than its batch.
REPORT_SECONDS = 0.05


class SubmitRequest(NamedTuple):
    """The arrival of a request."""

    request: Request


class AbortRequest(NamedTuple):
    """The owner of a request wants no more of it."""

    request: Request


class TimePassed(NamedTuple):
    """Nothing but that time has passed."""


class RequestsAdmitted(NamedTuple):
    """The entry of requests into the running batch, for the first time or again."""

    requests: Sequence[Request]


class RequestsAdvanced(NamedTuple):
    """The progress of requests in the running batch."""

    advances: Sequence[RequestTokens]


class RequestsFailed(NamedTuple):
    """The failure of requests, or that they cannot go on at this worker, for the reason in `message`."""

    requests: Sequence[Request]
    outcome: Outcome
    message: str


Stimulus = SubmitRequest | AbortRequest | TimePassed | RequestsAdmitted | RequestsAdvanced | RequestsFailed


class WorkerMachine:
    """The state machine of a worker's requests, which only `handle` changes; its times never decrease."""

    def __init__(self, queue: RequestQueue[BlockCache]) -> None:
        self.queue = queue
        self._accepted: list[Request] = []
        self._events = RequestEvents()
        self._step_seconds = 0.0
        self._reported_at = -math.inf

    def handle(self, stimulus: Stimulus, now: float) -> None:
        """Record what happens at `now` (seconds)."""
        self._HANDLERS[type(stimulus)](self, stimulus, now)

    def state(self, request: Request) -> RequestState:
        if request in self.queue.running:
            return RUNNING
        return WAITING if request in self.queue.waiting else ENDED

    def next_deadline(self) -> float | None:
        """Return the time at which a TimePassed is due, in seconds; None when no request has a deadline."""
        return self.queue.next_deadline()

    @property
    def accepted(self) -> list[RequestAccepted]:
        """The requests that have not ended, in order of arrival."""
        here = sorted((*self.queue.waiting, *self.queue.running), key=lambda request: request.arrival)
        return list(map(self._as_accepted, here))

    def _as_accepted(self, request: Request) -> RequestAccepted:
        if request.first_token_at is not None:
            return RequestAccepted(request, request.prompt_tokens - request.seed_position)
        return RequestAccepted(request, request.matched_blocks * self.queue.cache.block_tokens)

    @property
    def has_events(self) -> bool:
        """Whether anything has happened to a request since the last `take_events`."""
        events = self._events
        return bool(self._accepted or events.started or events.tokens or events.ended)

    def take_events(self) -> RequestEvents:
        """Return the events since the last call, and forget them."""
        events, self._events = self._events, RequestEvents()
        if self._accepted:
            events.accepted, self._accepted = list(map(self._as_accepted, self._accepted)), []
        return events

    def take_update(self, now: float, is_healthy: bool) -> WorkerUpdate:
        """Return all that has changed since the last call, at `now` (seconds).

        The load and the accounts follow up to REPORT_SECONDS later where no request came, started or ended.
        """
        cached, evicted = self.queue.cache.changes.take_events()
        events = self.take_events()
        update = WorkerUpdate(events=events, cached=cached, evicted=evicted, healthy=is_healthy)
        if events.accepted or events.started or events.ended or now >= self._reported_at + REPORT_SECONDS:
            self._reported_at = now
            update.load = load_of(self.queue, self._step_seconds)
            update.accounts = take_changed_accounts(self.queue)
            update.oldest_queued_at = self.queue.waiting.oldest_since
        return update

    def measured_step(self, seconds: float) -> None:
        """Count a step that took so long in the moving average of steps' times."""
        self._step_seconds += STEP_AVERAGE * (seconds - self._step_seconds)

    def _submit(self, submit: SubmitRequest, now: float) -> None:
        request = submit.request
        self._accepted.append(request)
        try:
            displaced = self.queue.submit(request, now)
        except FairleadError as error:
            self._end(request, now, error.outcome, message=error.message)
            return
        if displaced is not None:
            message = f"the queue is full, and client {displaced.client!r} has the most requests in it"
            self._end(displaced, now, Outcome.REJECTED_QUEUE_FULL, message=message)

    def _abort(self, abort: AbortRequest, now: float) -> None:
        if self.state(abort.request) is not ENDED:
            self.queue.abort(abort.request)
            self._end(abort.request, now, Outcome.CANCELLED, message="cancelled by the caller")

    def _tick(self, tick: TimePassed, now: float) -> None:
        for request in self.queue.expired(now):
            self._end(request, now, Outcome.DEADLINE_EXCEEDED, message="the call's deadline passed")

    def _admitted(self, admitted: RequestsAdmitted, now: float) -> None:
        for request in admitted.requests:
            if request.started_at is None:  # otherwise it was preempted and is admitted again
                request.started_at = now
                self._events.started.append(RequestStarted(request, request.service))

    def _advanced(self, advanced: RequestsAdvanced, now: float) -> None:
        for advance in advanced.advances:
            request, tokens, finish = advance.request, advance.tokens, advance.finish
            if advance.failure:
                self._end(request, now, Outcome.REJECTED_INVALID, message=advance.failure)
                continue
            if request.first_token_at is None:
                request.first_token_at = now
                self._events.computed.append(request)
            # A token that ends the output (end of sequence, a stop token) is reported but adds no text.
            advance.text, stop = request.text.push(tokens[:-1] if finish is FinishReason.STOP else tokens)
            advance.service = request.service
            self._events.tokens.append(advance)
            if stop:
                if finish is None:
                    self.queue.abort(request)
                self._end(request, now, Outcome.COMPLETED, FinishReason.STOP, stop_string=stop)
            elif finish is not None:
                self._end(request, now, Outcome.COMPLETED, finish, text=request.text.rest())

    def _failed(self, failed: RequestsFailed, now: float) -> None:
        for request in failed.requests:
            self.queue.abort(request)
            self._end(request, now, failed.outcome, message=failed.message)

    def _end(
        self,
        request: Request,
        now: float,
        outcome: Outcome,
        reason: FinishReason | None = None,
        *,
        message: str = "",
        text: str = "",
        stop_string: str = "",
    ) -> None:
        assert request.ended_at is None, f"{request.id} ends twice"
        request.ended_at = now
        self._events.ended.append(RequestEnded(request, outcome, reason, message, text, stop_string))

    _HANDLERS: ClassVar[Mapping[type[Stimulus], Callable[[Any, Any, float], None]]] = {
        SubmitRequest: _submit,
        AbortRequest: _abort,
        TimePassed: _tick,
        RequestsAdmitted: _admitted,
        RequestsAdvanced: _advanced,
        RequestsFailed: _failed,
    }

    def check_invariants(self) -> None:
        """Raise AssertionError unless the queue is sound and no request in it has ended."""
        ended = [request.id for request in (*self.queue.waiting, *self.queue.running) if request.ended_at is not None]
        assert not ended, f"ended and still here: {ended}"
        self.queue.check_invariants()
