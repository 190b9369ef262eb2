"""What can happen to a call: the closed set of events that its state machine handles.

Times are in seconds of whatever clock the driver passes as `now`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fairlead.errors import FairleadError
from fairlead.outcomes import FinishReason, Outcome


@dataclass(frozen=True, slots=True)
class Arrived:
    """The caller made the call; `deadline` is when the caller stops to wait for it, None for never."""

    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class Decided:
    """The call is admitted; its output is to go in messages of `tokens_per_message` tokens."""

    tokens_per_message: int = 1


@dataclass(frozen=True, slots=True)
class Encoded:
    """The prompt is tokenized."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A worker process is chosen for the attempt under way."""

    instance: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A command, such as to decide, to encode or to place, could not be carried out: `error` is the call's."""

    error: FairleadError


@dataclass(frozen=True, slots=True)
class Started:
    """The attempt has entered its worker's running batch; `service` is charged for the prompt, in cost units."""

    cached_tokens: int = 0
    service: float = 0.0


class Tokens(NamedTuple):
    """The attempt's next output; `service` is charged to the attempt so far. A tuple, because one is made per token."""

    token_ids: bytes  # packed
    text: str = ""
    service: float = 0.0
    logprobs: Sequence[object] = ()


@dataclass(frozen=True, slots=True)
class Completed:
    """The worker has generated all of the output; `service` is all that was charged to the attempt."""

    finish_reason: FinishReason | None = None
    service: float = 0.0
    text: str = ""  # held back until now


@dataclass(frozen=True, slots=True)
class Ended:
    """The worker ended the attempt before it completed. UNAVAILABLE: it gave the attempt back, as if it were lost."""

    outcome: Outcome
    message: str = ""
    service: float = 0.0  # all that was charged to the attempt; without meaning for UNAVAILABLE


@dataclass(frozen=True, slots=True)
class Lost:
    """The attempt's worker, or the way to it, is gone; nothing more comes of this attempt."""

    was_away: bool = False  # the gateway itself stood still: the loss says little about the worker


@dataclass(frozen=True, slots=True)
class Written:
    """The caller, or the network before it, took the message that was sent last."""


@dataclass(frozen=True, slots=True)
class CallerCancelled:
    """The caller is gone: it cancelled the call, or its deadline passed there."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; due when `next_deadline()` is reached, harmless at any other time."""


Event = (
    Arrived
    | Decided
    | Encoded
    | Placed
    | Failed
    | Started
    | Tokens
    | Completed
    | Ended
    | Lost
    | Written
    | CallerCancelled
    | Tick
)
