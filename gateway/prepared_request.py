"""The results of admission: an admitted request, and a tokenized request that is ready for a worker."""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from fairlead.v1 import inference_pb2, scheduler_pb2
from gateway.core.coalescer import TOKENS
from gateway.tenants import CallerIdentity
from serving.sampling_params import SamplingParams
from throttler.core.decider import Permit


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedRequest:
    """An admitted request whose prompt is not yet tokenized."""

    request: inference_pb2.GenerateRequest
    identity: CallerIdentity
    model: scheduler_pb2.ModelInfo
    sampling: SamplingParams
    permit: Permit
    waiting: ExitStack  # closed once the prompt is tokenized: it no longer counts among those that wait for that
    cuts_max_tokens: bool = False  # whether the output may have as many tokens as the context has room for, at most

    @property
    def tokens_per_message(self) -> int:
        """The number of output tokens per message, which the caller chooses."""
        return 1 if self.request.streaming == inference_pb2.STREAMING_EACH_TOKEN else TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRequest:
    """A tokenized request, with everything that a worker needs."""

    request_id: str
    client: str
    model: str
    token_ids: bytes
    digests: bytes
    revision: str  # the model's revision, for which `token_ids` and `digests` are valid
    system_tokens: int
    sampling: SamplingParams
    weight: float  # share x norm
    user_weight: float  # the norm: users of a tenant have equal shares
    interaction: str  # id, of the root where sessions form a tree; empty: none
    in_interaction: bool
    cache_scope: str
    public_tokens: int  # tokens at the beginning of the prompt that all cache scopes share
    deadline: float | None  # loop time
    call_grammar: str = ""  # of tool calls, of which the output has to consist; empty: none

    @property
    def constant_fields(self) -> dict[str, Any]:
        """The fields of a Submit that are the same in all attempts."""
        return {
            "request_id": self.request_id,
            "client": self.client,
            "model": self.model,
            "system_tokens": self.system_tokens,
            "weight": self.weight,
            "user_weight": self.user_weight,
            "interaction": self.interaction,
            "in_interaction": self.in_interaction,
            "cache_scope": self.cache_scope,
            "public_tokens": self.public_tokens,
            "call_grammar": self.call_grammar,
        }
