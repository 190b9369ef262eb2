"""The request of a call, which a front makes from its caller's message."""

from dataclasses import dataclass

from fairlead.v1 import inference_pb2
from gateway.core.session_tree import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """The request of one call, independent of the protocol."""

    message: inference_pb2.GenerateRequest
    user: str = ""  # named in the message; counts if the key may name users and the credentials name none
    session: Session | None = None  # identifies the interaction if `message` has none
    repeats_tool_calls: bool = False  # by ids that the gateway made, which tell of the interaction as well
    fills_context: bool = False  # max_tokens is a maximum, by default what the prompt leaves of the context
