"""One call, from its arrival to its end."""

import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from fairlead.outcomes import FinishReason, Outcome
from fairlead.output.call_id import call_id
from fairlead.v1 import common_pb2
from gateway.call_request import CallRequest
from serving.sampling_params import SamplingParams
from serving.telemetry.records import CHAT


@dataclass(slots=True, eq=False, kw_only=True)
class Call:
    """The data of one call; fields are set as the call proceeds and complete once `outcome` is set."""

    request_id: str
    deadline: float | None  # loop time
    traceparent: str = ""
    body_bytes: int = 0  # of the request, once it has arrived
    request: CallRequest = field(init=False, repr=False)  # once it has arrived
    caller_request_id: str = ""  # chosen by the caller; two calls may have the same
    client: str = ""
    app: str = ""  # the app for which the call is counted
    named_app: str = ""  # the app that the caller named, if the call is counted for another one
    model: str = ""
    policy: str = ""
    tier: str = ""
    sampling: SamplingParams | None = None
    interaction: str = ""
    interaction_token: bytes = b""  # for the interaction's next call
    entered: bool = False  # whether it was admitted and counted in its interaction
    stage: int = 0
    operation: str = CHAT
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


def new_id() -> str:
    """Return a random id for a request."""
    return secrets.token_hex(8)
