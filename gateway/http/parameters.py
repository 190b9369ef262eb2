"""What requests of chat completions and of completions have in common: how tokens are chosen, and how they are sent."""

from typing import Annotated, Any

import msgspec

from fairlead.errors import InvalidRequest
from fairlead.v1 import common_pb2
from gateway.http.session import session_in

MAX_CALLS = 128
Natural = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
Choices = Annotated[int, msgspec.Meta(ge=1, le=MAX_CALLS)]
SEEDS = 2**64


class Unsupported(msgspec.Struct, kw_only=True):
    """Parameters that clients know and this API does not obey."""

    logprobs: Any = None
    top_logprobs: Any = None
    prompt_logprobs: Any = None
    logit_bias: Any = None
    best_of: Any = None
    use_beam_search: Any = None
    suffix: Any = None
    tools: Any = None
    tool_choice: Any = None
    functions: Any = None
    function_call: Any = None
    response_format: Any = None
    structured_outputs: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    reasoning_effort: Any = None
    modalities: Any = None
    audio: Any = None
    web_search_options: Any = None
    chat_template: Any = None
    chat_template_kwargs: Any = None
    continue_final_message: Any = None
    add_generation_prompt: Any = None
    documents: Any = None

    def check_supported(self) -> None:
        """Raise InvalidRequest for a parameter that asks for something, naming it."""
        for name in Unsupported.__struct_fields__:
            value = getattr(self, name)
            if value is not None and value not in HARMLESS.get(name, ()):
                raise InvalidRequest("this parameter is not supported yet", name)


# Values that ask for nothing but what is done anyway.
HARMLESS: dict[str, tuple[Any, ...]] = {
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "best_of": (1,),
    "use_beam_search": (False,),
    "suffix": ("",),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "structured_outputs": ({},),
    "reasoning_effort": ("none",),
    "modalities": (["text"],),
    "chat_template_kwargs": ({},),
    "continue_final_message": (False,),
    "add_generation_prompt": (True,),
    "documents": ([],),
}


class StreamOptions(msgspec.Struct, kw_only=True):
    """What a stream has beside its tokens."""

    include_usage: bool | None = None


class Parameters(Unsupported, kw_only=True):
    """Fields of both APIs; absent and null mean the API's default. Unknown fields are ignored."""

    model: str = ""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Choices | None = None
    user: str | None = None
    safety_identifier: str | None = None
    metadata: Any = None
    prompt_cache_key: Any = None
    max_tokens: Natural | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Annotated[int, msgspec.Meta(ge=-1, le=2**32 - 1)] | None = None
    min_p: float | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[Natural] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    min_tokens: Natural | None = None
    ignore_eos: bool | None = None

    @property
    def named_user(self) -> str:
        """Whom the request is for, as its body says."""
        return self.user or self.safety_identifier or ""

    @property
    def named_session(self) -> str:
        """Name the session that the request is of, as agents say it in its body."""
        return session_in(self.metadata, self.prompt_cache_key)

    @property
    def includes_usage(self) -> bool:
        """Whether a stream is to end with its usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def sampling(self) -> common_pb2.SamplingParams:
        """Return how tokens are chosen, with OpenAI's defaults."""
        temperature = 1.0 if self.temperature is None else self.temperature
        stop = [self.stop] if isinstance(self.stop, str) else self.stop
        return common_pb2.SamplingParams(
            max_tokens=self.max_tokens,
            temperature=temperature,
            top_p=self.top_p,
            top_k=None if self.top_k is None else max(0, self.top_k),
            min_p=self.min_p,
            stop=stop or (),
            stop_token_ids=self.stop_token_ids or (),
            seed=None if self.seed is None else self.seed % SEEDS,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repetition_penalty=self.repetition_penalty,
            min_tokens=self.min_tokens,
            ignore_eos=self.ignore_eos,
        )


def drawn(sampling: common_pb2.SamplingParams, number: int) -> common_pb2.SamplingParams:
    """Return `sampling` for choice `number` of a prompt: of a given seed, each choice draws with one of its own."""
    if number == 0 or not sampling.HasField("seed"):
        return sampling
    other = common_pb2.SamplingParams()
    other.CopyFrom(sampling)
    other.seed = (sampling.seed + number) % SEEDS
    return other
