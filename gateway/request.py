"""What a front makes of what its caller sent."""

from dataclasses import dataclass

from fairlead.v1 import inference_pb2
from gateway.core.session_tree import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """The request of one call, whatever protocol it came by."""

    message: inference_pb2.GenerateRequest
    user: str = ""  # whom the message itself names: counts where the key may name users and the credentials name nobody
    session: Session | None = None  # names the interaction, where `message` has none
    fills_context: bool = False  # where `message` has no max_tokens: the rest of the context, instead of the default
