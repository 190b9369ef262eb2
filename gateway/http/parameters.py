"""What requests of chat completions and of completions have in common."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from fairlead.errors import InvalidRequest
from fairlead.v1 import common_pb2
from gateway.http.common_fields import (
    Level,
    Maximum,
    Natural,
    OpenAIRequest,
    Wish,
    effort,
    thought,
    verbosity,
)
from gateway.http.constraint import ChatSchemaFormat, JsonObjectFormat, Schema, TextFormat, of_schema
from serving.constraint import check_choices
from serving.sampling_params import MAX_LOGPROBS, check_biases

MAX_CALLS = 128
THOUGHTS = ("reasoning", "thinking", "enable_thinking", "think")  # wishes for thinking
TYPED = {  # fields of the typed request, by the parameters that name them instead of those of the dialect
    "guided_json": "sampling.json_schema",
    "guided_regex": "sampling.regex",
    "guided_choice": "sampling.choice",
    "guided_grammar": "sampling.grammar",
    "structured_outputs.json": "sampling.json_schema",
    "structured_outputs.json_object": "sampling.json_object",
}
Alternatives = Annotated[int, msgspec.Meta(ge=0, le=MAX_LOGPROBS)]  # most likely tokens at a position
Given = tuple[str, common_pb2.SamplingParams]  # a parameter's name, and the constraint for which it asks
Format = TextFormat | JsonObjectFormat | ChatSchemaFormat
Choices = Annotated[int, msgspec.Meta(ge=1, le=MAX_CALLS)]


class Unsupported(OpenAIRequest, kw_only=True):
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
    "modalities": (["text"], []),
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


class StructuredOutputs(msgspec.Struct, forbid_unknown_fields=True):
    """The constraints of an output as vLLM names them; at most one of them may be given."""

    json: str | Schema | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: None = None
    whitespace_pattern: None = None
    disable_additional_properties: Literal[False] | None = None
    disable_any_whitespace: bool | None = None  # a wish
    disable_fallback: bool | None = None  # to another library, of which there is none


class Parameters(Unsupported, kw_only=True):
    """Fields that chat completions and completions have in common; at most one of them constrains the output."""

    response_format: Format | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: str | Schema | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
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
        asked = self.stream_options
        return asked is not None and bool(asked.include_usage and asked.continuous_usage_stats)

    @property
    def names(self) -> dict[str, str]:
        """See ParsedRequest."""
        asked = self.structured_outputs or StructuredOutputs()
        given = {
            "guided_json": self.guided_json,
            "guided_regex": self.guided_regex,
            "guided_choice": self.guided_choice,
            "guided_grammar": self.guided_grammar,
            "structured_outputs.json": asked.json,
            "structured_outputs.json_object": asked.json_object or None,
        }
        return {TYPED[name]: name for name, value in given.items() if value is not None}

    def wishes(self) -> list[Wish]:
        """Return what the body wishes for."""
        wishes: list[Wish] = []
        for field in THOUGHTS:
            if (asked := getattr(self, field)) is not None:
                wishes += thought(field, asked)
        if self.reasoning_effort is not None:
            wishes.append(effort("reasoning_effort", self.reasoning_effort))
        if self.verbosity is not None:
            wishes.append(verbosity("verbosity", self.verbosity))
        if self.structured_outputs is not None and self.structured_outputs.disable_any_whitespace:
            wishes.append(Wish("structured_outputs.disable_any_whitespace"))
        return wishes if self.web_search_options is None else [*wishes, Wish("web_search_options")]

    def left_out(self) -> list[str]:
        """See ParsedRequest."""
        return []

    def forget(self) -> None:
        """See ParsedRequest."""
        self.service_tier = self.named_tier
        for field in ("metadata", "prompt_cache_key", "web_search_options", *THOUGHTS):
            setattr(self, field, None)

    def sampling(self, form: Format | None) -> common_pb2.SamplingParams:
        """Return how tokens are chosen for an output of the format `form`, with OpenAI's defaults.

        Raise InvalidRequest for two constraints.
        """
        sampling = self.parameters(self.max_tokens, [self.stop] if isinstance(self.stop, str) else self.stop)
        if self.logit_bias:
            check_biases(len(self.logit_bias))
            sampling.logit_bias.update(self.logit_bias)
        given = [*self._constraints(form)]
        if len(given) > 1:
            raise InvalidRequest(f"not together with {given[0][0]}: an output has one constraint", given[1][0])
        for _, constraint in given:
            sampling.MergeFrom(constraint)
        return sampling

    def _constraints(self, form: Format | None) -> Iterator[Given]:
        match form:
            case JsonObjectFormat():
                yield "response_format", common_pb2.SamplingParams(json_object=True)
            case ChatSchemaFormat(json_schema):
                yield "response_format", of_schema(True if json_schema.schema is None else json_schema.schema)
        if self.structured_outputs is not None:
            yield from _of_vllm("structured_outputs.", self.structured_outputs)
        guided = StructuredOutputs(self.guided_json, self.guided_regex, self.guided_choice, self.guided_grammar)
        yield from _of_vllm("guided_", guided)


def _of_vllm(prefix: str, asked: StructuredOutputs) -> Iterator[Given]:
    if asked.json is not None:
        yield f"{prefix}json", of_schema(asked.json)
    if asked.regex is not None:
        yield f"{prefix}regex", common_pb2.SamplingParams(regex=asked.regex)
    if asked.choice is not None:
        check_choices(len(asked.choice))
        yield f"{prefix}choice", common_pb2.SamplingParams(choice=common_pb2.Choices(texts=asked.choice))
    if asked.grammar is not None:
        yield f"{prefix}grammar", common_pb2.SamplingParams(grammar=asked.grammar)
    if asked.json_object:
        yield f"{prefix}json_object", common_pb2.SamplingParams(json_object=True)
