"""The states of a call and the table of its transitions, from which the diagram in docs/architecture.md is drawn.

Rules that the table does not show:

- A call has one outcome. It is recorded on entering FINISHING (completed; the last message is being written) or ENDED.
- What the caller has not been told yet is sent before an end that the call reaches by itself. A caller that is gone,
  does not read, or has waited until its deadline ends the call at once, wherever it is; so does a defect.
- A lost attempt leads back to PLACING, until MAX_ATTEMPTS in a row have brought no token.
- An ended call ignores everything, except that it gives a placement back that comes too late.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import get_args

from gateway.core.call_events import (
    Arrived,
    CallerCancelled,
    Completed,
    Decided,
    Encoded,
    Ended,
    Event,
    Failed,
    Lost,
    Placed,
    Started,
    Tick,
    Tokens,
    Written,
)


class CallState(StrEnum):
    """Where a call is between its arrival and its end."""

    NEW = "new"
    DECIDING = "deciding"  # admission examines it
    ENCODING = "encoding"  # a worker tokenizes its prompt
    PLACING = "placing"  # a worker is being chosen
    QUEUED = "queued"  # at a worker, not in its batch yet
    RUNNING = "running"  # in its worker's batch
    FLUSHING = "flushing"  # the end is known, output waits for the caller
    FINISHING = "finishing"  # completed; the last message is being written
    ENDED = "ended"


NEW, DECIDING, ENCODING, PLACING, QUEUED, RUNNING, FLUSHING, FINISHING, ENDED = CallState
EVENTS: tuple[type[Event], ...] = get_args(Event)
Targets = tuple[CallState, ...]

TRANSITIONS: Mapping[CallState, Mapping[type[Event], Targets]] = {
    NEW: {Arrived: (DECIDING,), CallerCancelled: (ENDED,), Tick: (NEW,)},
    DECIDING: {Decided: (ENCODING,), Failed: (ENDED,), CallerCancelled: (ENDED,), Tick: (DECIDING, ENDED)},
    ENCODING: {Encoded: (PLACING,), Failed: (ENDED,), CallerCancelled: (ENDED,), Tick: (ENCODING, ENDED)},
    PLACING: {
        Placed: (QUEUED,),
        Failed: (FLUSHING, ENDED),
        Written: (PLACING,),
        CallerCancelled: (ENDED,),
        Tick: (PLACING, ENDED),
    },
    QUEUED: {
        Failed: (ENDED,),
        Started: (RUNNING,),
        Ended: (PLACING, FLUSHING, ENDED),
        Lost: (PLACING, FLUSHING, ENDED),
        Written: (QUEUED,),
        CallerCancelled: (ENDED,),
        Tick: (QUEUED, ENDED),
    },
    RUNNING: {
        Failed: (ENDED,),
        Started: (RUNNING,),
        Tokens: (RUNNING,),
        Completed: (FLUSHING, FINISHING),
        Ended: (PLACING, FLUSHING, ENDED),
        Lost: (PLACING, FLUSHING, ENDED),
        Written: (RUNNING,),
        CallerCancelled: (ENDED,),
        Tick: (RUNNING, ENDED),
    },
    FLUSHING: {
        Failed: (ENDED,),
        Written: (FLUSHING, FINISHING, ENDED),
        CallerCancelled: (ENDED,),
        Tick: (FLUSHING, ENDED),
    },
    FINISHING: {Failed: (ENDED,), Written: (ENDED,), CallerCancelled: (ENDED,), Tick: (FINISHING, ENDED)},
    ENDED: dict.fromkeys(EVENTS, (ENDED,)),
}
