"""The closed set of commands from a call's state machine to its driver.

A driver executes commands in order. It answers Decide, Encode and Place with one event each (Decided, Encoded, Placed,
or Failed). A Message is to be written to the caller, and answered with Written as soon as the caller has taken it; at
most one message is being written at a time.
"""

from dataclasses import dataclass

from fairlead.errors import FairleadError
from gateway.core.call_events import OutputChunk


@dataclass(frozen=True, slots=True)
class Decide:
    """Authenticate the caller, validate the request, and decide whether to admit it."""


@dataclass(frozen=True, slots=True)
class Encode:
    """Tokenize the prompt."""


@dataclass(frozen=True, slots=True)
class Place:
    """Choose a worker for attempt number `attempt`, except the worker processes in `excluded`."""

    attempt: int
    excluded: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Submit:
    """Send the attempt to the worker that was chosen last; the output continues after what is generated already."""


@dataclass(frozen=True, slots=True)
class Abort:
    """Abort the attempt at its worker; the driver drops the worker's later events of it."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Return the placement of an attempt that never started to the scheduler."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """The message that a worker has started the call."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The message that the output is complete, with the last of it; clients count a message of its own as a token."""

    last: OutputChunk | None = None  # None: the caller has all of the output already


Message = Accepted | OutputChunk | Finished


@dataclass(frozen=True, slots=True)
class End:
    """Record the call's outcome: `error`, or None for COMPLETED. The command is issued once per call.

    The driver cancels an unfinished Decide, Encode or Place. An error is the last thing that the caller receives.
    """

    error: FairleadError | None


@dataclass(frozen=True, slots=True)
class HangUp:
    """Break the stream to a caller that does not take its message; `error` is the reason."""

    error: FairleadError


Command = Decide | Encode | Place | Submit | Abort | Withdraw | Message | End | HangUp
