"""The states of a worker's request and the table of its transitions, from which docs/architecture.md is drawn.

Rules that the table does not show:

- A state is no field of a request: the collection that holds the request says in which state it is.
- A request ends once, with one RequestEnded. An ended request is in no collection, and ignores all events.
- A running request whose mask is late stays in the batch and misses steps (LateMasks).
"""

from collections.abc import Mapping
from enum import StrEnum


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
