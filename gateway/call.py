"""One call and its request, from its arrival to its end."""

import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from fairlead.outcomes import FinishReason, Outcome
from fairlead.output.call_id import call_id
from fairlead.v1 import common_pb2, inference_pb2, scheduler_pb2, worker_pb2
from gateway.core.call_events import TOKENS
from gateway.core.session_tree import Session
from gateway.prompt_encoding import PromptEncoding
from gateway.tenants import CallerIdentity
from serving.sampling_params import SamplingParams
from serving.service_tiers import DEFAULT, FLEX
from serving.telemetry.records import CHAT
from throttler.core.decider import Permit

Message = TypeVar("Message")
Receive = Callable[[], Awaitable[Message]]  # reads and parses a request; raises InvalidRequest


@dataclass(slots=True, eq=False, kw_only=True)
class Call:
    """The data of one call, independent of the protocol; fields are set as the call proceeds.

    They are complete once `outcome` is set. Those of the request are unset until their stage is reached.
    """

    request_id: str
    deadline: float | None  # loop time
    traceparent: str = ""
    body_bytes: int = 0  # of the request, once it has arrived
    caller_request_id: str = ""  # chosen by the caller; two calls may have the same
    client: str = ""
    key: str = ""  # the name of the API key
    app: str = ""  # the app for which the call is counted
    named_app: str = ""  # the app that the caller named, if the call is counted for another one
    model: str = ""
    policy: str = ""
    tier: str = ""
    background: bool = False  # it takes only what no interactive call wants
    counted_as: str = ""  # the name under which it counts towards what clients hold
    sampling: SamplingParams | None = None
    interaction: str = ""
    interaction_token: bytes = b""  # for the interaction's next call
    entered: bool = False  # whether it was admitted and counted in its interaction
    stage: int = 0
    operation: str = CHAT
    predicted_wait: float | None = None  # seconds from its first submission to its start
    waited: float | None = None  # the same, once it has started
    worker: str = ""
    worker_instance: str = ""
    scheduler: str = ""  # id of the process that placed it last; empty: this gateway
    attempts: int = 0
    matched_tokens: int = 0
    usage: common_pb2.Usage = field(default_factory=common_pb2.Usage)
    timings: common_pb2.Timings = field(default_factory=common_pb2.Timings)
    output_format: common_pb2.OutputFormat = field(default_factory=common_pb2.OutputFormat)
    granted: frozenset[str] = frozenset()  # names of the chat's wishes that the chat template was given
    finish_reason: FinishReason | None = None
    stop_string: str = ""  # that ended the output, if one did
    outcome: Outcome | None = None
    message: str = ""
    tool_call_id: Callable[[int], str] = str  # of the output's tool call with this number
    cleanup: ExitStack = field(default_factory=ExitStack)  # at the end undoes what admission counted
    arrived: int = field(default_factory=time.monotonic_ns)
    # The request as received.
    request: inference_pb2.GenerateRequest = field(init=False, repr=False)
    user: str = ""  # named in the request; counts if the key may name users and the credentials name none
    session: Session | None = None  # identifies the interaction if `request` has none
    encoding: PromptEncoding | None = None  # of the prompt, if other calls have the same
    repeats_tool_calls: bool = False  # by ids that the gateway made, which tell of the interaction as well
    fills_context: bool = False  # max_tokens is a maximum, by default what the prompt leaves of the context
    # As admitted.
    asked: str = ""  # digest of what the chat asks, by which its next request is known; empty if it names a session
    identity: CallerIdentity = field(init=False, repr=False)
    limits: scheduler_pb2.ModelInfo = field(init=False, repr=False)  # of the model
    permit: Permit = field(init=False, repr=False)
    waiting: ExitStack = field(init=False, repr=False)  # closed once the prompt does not count among those to tokenize
    # As prepared: what all attempts send, except for the fields that an attempt sets.
    dispatch: scheduler_pb2.DispatchRequest = field(init=False, repr=False)
    submit: worker_pb2.Submit = field(init=False, repr=False)

    @property
    def tokens_per_message(self) -> int:
        """The number of output tokens per message, which the caller of a received request chooses."""
        return 1 if self.request.streaming == inference_pb2.STREAMING_EACH_TOKEN else TOKENS

    def drop_request(self) -> None:
        """Free the memory of the request: its prompt is tokenized, or the call has ended."""
        self.request, self.encoding = inference_pb2.GenerateRequest(), None

    def unix_time(self) -> int:
        """Return the time in Unix nanoseconds as the call's arrival and a monotonic clock tell it.

        So no step of a call is earlier than the one before, and no duration is wrong, when the machine's clock is set.
        """
        return self.timings.received + time.monotonic_ns() - self.arrived


def new_call(deadline: float | None) -> Call:
    """Return a call that arrives now, with a new id; `deadline` is in seconds of the loop's clock."""
    request_id = new_id()
    call = Call(request_id=request_id, deadline=deadline, tool_call_id=partial(call_id, request_id))
    call.timings.received = time.time_ns()
    return call


def predicted_wait(call: Call) -> list[tuple[str, str]]:
    """Return the header, or metadata, with the predicted wait; none for a call that no worker was given."""
    return [] if call.predicted_wait is None else [("x-fairlead-predicted-wait", f"{call.predicted_wait:.3f}")]


def service_tier(call: Call) -> str:
    return FLEX if call.background else DEFAULT


def new_id() -> str:
    """Return a random id for a request."""
    return secrets.token_hex(8)
