"""The request of a call: received from its caller, then admitted, then prepared for workers."""

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TypeVar

from fairlead.v1 import inference_pb2, scheduler_pb2, worker_pb2
from gateway.core.coalescer import TOKENS
from gateway.core.session_tree import Session
from gateway.tenants import CallerIdentity
from throttler.core.decider import Permit

Message = TypeVar("Message")
Receive = Callable[[], Awaitable[Message]]  # reads and parses a request; raises InvalidRequest


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class CallRequest:
    """The request of one call, independent of the protocol; the fields of a stage are unset until it is reached."""

    # Received.
    message: inference_pb2.GenerateRequest
    user: str = ""  # named in the message; counts if the key may name users and the credentials name none
    session: Session | None = None  # identifies the interaction if `message` has none
    repeats_tool_calls: bool = False  # by ids that the gateway made, which tell of the interaction as well
    fills_context: bool = False  # max_tokens is a maximum, by default what the prompt leaves of the context
    # Admitted.
    identity: CallerIdentity = field(init=False)
    model: scheduler_pb2.ModelInfo = field(init=False)
    permit: Permit = field(init=False)
    waiting: ExitStack = field(init=False)  # closed once the prompt no longer counts among those to be tokenized
    # Prepared: what all attempts send, except for the fields that an attempt sets.
    dispatch: scheduler_pb2.DispatchRequest = field(init=False)
    submit: worker_pb2.Submit = field(init=False)

    @property
    def tokens_per_message(self) -> int:
        """The number of output tokens per message, which the caller of a received request chooses."""
        return 1 if self.message.streaming == inference_pb2.STREAMING_EACH_TOKEN else TOKENS

    def drop_message(self) -> None:
        """Free the memory of the message: its prompt is tokenized, or the call has ended."""
        self.message = inference_pb2.GenerateRequest()
