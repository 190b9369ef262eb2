"""One call, from its arrival to its end."""

import secrets
import time
from contextlib import ExitStack
from dataclasses import dataclass, field

from fairlead.outcomes import FinishReason, Outcome
from fairlead.v1 import common_pb2
from serving.sampling_params import SamplingParams
from serving.telemetry.records import CHAT


@dataclass(slots=True, eq=False, kw_only=True)
class Call:
    """What is known of one call; filled in as it proceeds, complete once `outcome` is set."""

    request_id: str
    deadline: float | None  # loop time
    traceparent: str = ""
    caller_request_id: str = ""  # the caller's own name for it: two calls may have the same
    client: str = ""
    app: str = ""  # what it counts as
    named_app: str = ""  # what its caller named, where that is not what it counts as
    model: str = ""
    policy: str = ""
    tier: str = ""
    sampling: SamplingParams | None = None
    interaction: str = ""
    interaction_token: bytes = b""  # for the interaction's next call
    entered: bool = False  # admitted, and counted in its interaction
    stage: int = 0
    operation: str = CHAT
    worker: str = ""
    worker_instance: str = ""
    scheduler: str = ""  # the process that placed it last; empty: this gateway
    attempts: int = 0
    matched_tokens: int = 0
    usage: common_pb2.Usage = field(default_factory=common_pb2.Usage)
    timings: common_pb2.Timings = field(default_factory=common_pb2.Timings)
    finish_reason: FinishReason | None = None
    stop_string: str = ""  # that ended the output, if one did
    outcome: Outcome | None = None
    message: str = ""
    cleanup: ExitStack = field(default_factory=ExitStack)  # undoes, at the end, what admission counted in


def new_call(deadline: float | None) -> Call:
    """Return a call that arrives now, under an id of its own; `deadline` is in seconds of the loop's clock."""
    call = Call(request_id=new_id(), deadline=deadline)
    call.timings.received = time.time_ns()
    return call


def new_id() -> str:
    """Return a random id for a request."""
    return secrets.token_hex(8)
