"""What a call's state machine asks of its driver: the closed set of commands.

A driver carries commands out in order. It answers Decide, Encode and Place with one event each (Decided, Encoded,
Placed, or Failed), and every Send with Written as soon as the message is taken.
"""

from dataclasses import dataclass

from fairlead.errors import FairleadError
from fairlead.outcomes import FinishReason
from gateway.core.coalescer import OutputChunk


@dataclass(frozen=True, slots=True)
class Decide:
    """Find out who calls, whether the request is valid, and whether it is let in."""


@dataclass(frozen=True, slots=True)
class Encode:
    """Tokenize the prompt."""


@dataclass(frozen=True, slots=True)
class Place:
    """Choose a worker for attempt number `attempt`, none of the worker processes in `excluded`."""

    attempt: int
    excluded: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Submit:
    """Send the attempt to the worker chosen last."""

    attempt: int
    generated: bytes  # packed output of earlier attempts, which goes on after it
    output_tokens: int  # in `generated`
    charged: bool  # an earlier attempt started: the prompt is paid


@dataclass(frozen=True, slots=True)
class Abort:
    """Have the worker free the attempt; the worker's later events of it are to be dropped."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Give the placement back to the scheduler: the attempt never started."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """Message: a worker has begun with the call."""

    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Finished:
    """Message: the output is complete."""

    finish_reason: FinishReason | None


Message = Accepted | OutputChunk | Finished


@dataclass(frozen=True, slots=True)
class Send:
    """Write `message` to the caller; at most one message is under way."""

    message: Message


@dataclass(frozen=True, slots=True)
class End:
    """Record the call's outcome, given once: `error`, or None for COMPLETED.

    What is still under way of Decide, Encode and Place is cancelled. An error is the last that the caller is told.
    """

    error: FairleadError | None


@dataclass(frozen=True, slots=True)
class HangUp:
    """Break the stream to the caller, who does not take the message under way; `error` says why."""

    error: FairleadError


Command = Decide | Encode | Place | Submit | Abort | Withdraw | Send | End | HangUp
