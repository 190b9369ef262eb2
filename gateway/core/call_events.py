"""The closed set of events that a call's state machine handles; an OutputChunk is the attempt's next output.

Times are in seconds of the clock that the driver passes as `now`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fairlead.errors import FairleadError
from fairlead.outcomes import FinishReason, Outcome
from fairlead.token_ids import TOKEN_BYTES

TOKENS = 4  # per message, which workers gather


class OutputChunk(NamedTuple):
    """Output on its way from a worker to the caller. It is a tuple because one is made for every few tokens."""

    token_ids: bytes  # packed
    text: str = ""
    logprobs: Sequence[object] = ()  # one per token, or none; this module does not read them
    prompt_logprobs: Sequence[object] = ()  # those of the prompt, with the first token; or none
    service: float = 0.0  # the worker's charge for the attempt so far, in cost units

    @property
    def tokens(self) -> int:
        """The number of tokens; 0 for text that belongs to tokens sent earlier."""
        return len(self.token_ids) // TOKEN_BYTES


@dataclass(frozen=True, slots=True)
class Arrived:
    """The call arrived; `deadline` is the time until which its caller waits, None: without limit."""

    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class Decided:
    """The call is admitted; its output is sent in messages of `tokens_per_message` tokens."""

    tokens_per_message: int = 1


@dataclass(frozen=True, slots=True)
class Encoded:
    """The prompt of the call is tokenized."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A worker process is chosen for the current attempt."""

    instance: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A command such as Decide, Encode or Place failed; the call ends with `error`."""

    error: FairleadError


@dataclass(frozen=True, slots=True)
class Started:
    """The attempt has entered its worker's running batch; `service` is the charge for the prompt, in cost units."""

    cached_tokens: int = 0
    service: float = 0.0


@dataclass(frozen=True, slots=True)
class Completed:
    """The worker has generated all of the output; `service` is the whole charge for the attempt, in cost units.

    `last` is the output that came together with the end, and the text that the worker held back until then.
    """

    finish_reason: FinishReason | None = None
    service: float = 0.0
    last: OutputChunk | None = None
    stop_string: str = ""  # that ended the output, if one did
    timings: object = None  # of the worker; the machine does not read them


@dataclass(frozen=True, slots=True)
class Ended:
    """The worker ended the attempt before it completed. UNAVAILABLE counts as a lost attempt, which is placed again."""

    outcome: Outcome
    message: str = ""
    service: float = 0.0  # the whole charge for the attempt, in cost units; without meaning for UNAVAILABLE
    field: str = ""  # the path of the field that is the reason of REJECTED_INVALID, if one is
    timings: object = None  # as in Completed


@dataclass(frozen=True, slots=True)
class Lost:
    """The attempt's worker, or the connection to it, is lost; no further events of this attempt follow."""

    gateway_stalled: bool = False  # whether the gateway itself stalled, so that the worker may be healthy


@dataclass(frozen=True, slots=True)
class Written:
    """The caller, or a buffer on the way to it, took the message that was sent last."""


@dataclass(frozen=True, slots=True)
class CallerCancelled:
    """The caller cancelled the call or disconnected, or the deadline passed at the caller."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The time of `next_deadline()` is reached; the event is harmless at any other time."""


Event = (
    Arrived
    | Decided
    | Encoded
    | Placed
    | Failed
    | Started
    | OutputChunk
    | Completed
    | Ended
    | Lost
    | Written
    | CallerCancelled
    | Tick
)
