"""What admission makes of a request: let in, then tokenized and ready for a worker."""

from dataclasses import dataclass

from fairlead.v1 import inference_pb2, scheduler_pb2
from gateway.core.coalescer import TOKENS
from gateway.tenants import CallerIdentity
from serving.sampling_params import SamplingParams
from throttler.core.decider import Permit


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedRequest:
    """A request that is let in, while its prompt is tokenized."""

    request: inference_pb2.GenerateRequest
    identity: CallerIdentity
    model: scheduler_pb2.ModelInfo
    sampling: SamplingParams
    permit: Permit
    fills_context: bool = False  # without max_tokens, the output may take what the prompt leaves of the context

    @property
    def tokens_per_message(self) -> int:
        """How many tokens of its output go into one message, as the caller wants it."""
        return 1 if self.request.streaming == inference_pb2.STREAMING_EACH_TOKEN else TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRequest:
    """Everything that a worker needs, frozen."""

    request_id: str
    client: str
    model: str
    token_ids: bytes
    digests: bytes
    revision: str  # of the model that they are for
    system_tokens: int
    sampling: SamplingParams
    weight: float
    in_interaction: bool
    cache_scope: str
    public_tokens: int  # of the prompt, in its beginning: shared by every cache scope
    deadline: float | None  # loop time
