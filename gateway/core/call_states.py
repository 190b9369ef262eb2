"""The states of a call and the table of its transitions, from which the diagram in docs/architecture.md is drawn.

Rules that the table does not show:

- A call has one outcome. It is recorded on entering FINISHING (completed; the last message is being written) or ENDED.
- If a call completes or fails at its worker, the output that is still held is sent before the end. A call ends at once,
  in any state, if its caller disconnects or does not read, if its deadline passes, or after a defect.
- A lost attempt leads back to PLACING, unless MAX_ATTEMPTS consecutive attempts have brought no token.
- An ended call ignores all events, except that it returns a placement that comes too late.
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
    OutputChunk,
    Placed,
    Started,
    Tick,
    Written,
)


class CallState(StrEnum):
    """The state of a call between its arrival and its end."""

    NEW = "new"
    DECIDING = "deciding"  # admission examines it
    ENCODING = "encoding"  # a worker tokenizes its prompt
    PLACING = "placing"  # a worker is being chosen
    QUEUED = "queued"  # at a worker, not yet in its batch
    RUNNING = "running"  # in its worker's batch
    FLUSHING = "flushing"  # the end is known; output waits for the caller
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
        OutputChunk: (RUNNING,),
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
