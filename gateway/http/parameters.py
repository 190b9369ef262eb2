"""What requests of chat completions and of completions have in common."""

from collections.abc import Collection
from typing import Annotated, Any

import msgspec

from fairlead.v1 import common_pb2
from gateway.http.constraint import ConstrainedRequest
from gateway.http.sampling import Maximum, Natural
from gateway.http.wishes import Level, Wish, effort, thought, verbosity, without_effect
from serving.sampling_params import MAX_LOGPROBS, check_biases

MAX_CALLS = 128
THOUGHTS = ("reasoning", "thinking", "enable_thinking", "think")  # wishes for thinking
Alternatives = Annotated[int, msgspec.Meta(ge=0, le=MAX_LOGPROBS)]  # most likely tokens at a position
Choices = Annotated[int, msgspec.Meta(ge=1, le=MAX_CALLS)]


class Unsupported(ConstrainedRequest, kw_only=True):
    """Parameters that clients know and this API does not obey."""

    prompt_logprobs: Any = None
    best_of: Any = None
    use_beam_search: Any = None
    suffix: Any = None
    functions: Any = None
    function_call: Any = None
    modalities: Any = None
    audio: Any = None
    chat_template: Any = None
    documents: Any = None
    moderation: Any = None
    add_special_tokens: Any = None
    allowed_token_ids: Any = None
    bad_words: Any = None
    cache_salt: Any = None
    include_stop_str_in_output: Any = None
    length_penalty: Any = None
    logits_processors: Any = None
    return_token_ids: Any = None
    return_tokens_as_token_ids: Any = None
    skip_special_tokens: Any = None
    truncate_prompt_tokens: Any = None


# Values that ask for nothing but what is done anyway.
HARMLESS: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "use_beam_search": (False,),
    "suffix": ("",),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "documents": ([],),
    "allowed_token_ids": ([],),
    "bad_words": ([],),
    "include_stop_str_in_output": (False,),
    "length_penalty": (1,),
    "logits_processors": ([],),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "skip_special_tokens": (True,),
}


class StreamOptions(msgspec.Struct, kw_only=True):
    """The parts of a stream beside its tokens."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None  # of vLLM: each event has the usage so far


class Parameters(Unsupported, kw_only=True):
    """Fields that chat completions and completions have in common."""

    stream_options: StreamOptions | None = None
    n: Choices | None = None
    max_tokens: Maximum | None = None
    stop: str | list[str] | None = None
    logit_bias: dict[Natural, float] | None = None
    reasoning_effort: Level | None = None
    verbosity: Level | None = None
    reasoning: Any = None  # other APIs' fields for the same wish
    thinking: Any = None
    enable_thinking: Any = None
    think: Any = None
    web_search_options: Any = None  # a tool of OpenAI's servers, left out as those among `tools` are

    @property
    def includes_usage(self) -> bool:
        """Whether a stream is to end with its usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def counts_tokens(self) -> bool:
        """See ParsedRequest. As in vLLM it needs `include_usage`."""
        return self.includes_usage and bool(self.stream_options and self.stream_options.continuous_usage_stats)

    def wishes(self) -> list[Wish]:
        """Return what the body wishes for."""
        wishes = [
            wish for field in THOUGHTS if (asked := getattr(self, field)) is not None for wish in thought(field, asked)
        ]
        wishes += [*effort("reasoning_effort", self.reasoning_effort), *verbosity("verbosity", self.verbosity)]
        return wishes if self.web_search_options is None else [*wishes, Wish("web_search_options")]

    def left_out(self, granted: Collection[str]) -> list[str]:
        """See ParsedRequest."""
        return without_effect(self.wishes(), granted)

    def sampling(self) -> common_pb2.SamplingParams:
        """Return how tokens are chosen, with OpenAI's defaults; raises InvalidRequest for two constraints."""
        sampling = self.parameters(self.max_tokens, [self.stop] if isinstance(self.stop, str) else self.stop)
        if self.logit_bias:
            check_biases(len(self.logit_bias))
            sampling.logit_bias.update(self.logit_bias)
        self.constrain(sampling)
        return sampling
