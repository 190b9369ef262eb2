"""The keyword arguments of a call beside its prompt. Options that are absent or None take their defaults."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from fairlead.tools import Tool


class SamplingOptions(TypedDict, total=False):
    """Options that control how tokens are chosen and when the output ends: SamplingParams of common.proto."""

    max_tokens: int | None
    """The largest number of output tokens; by default 128."""
    temperature: float | None
    """The sampling temperature, 0 to 100; by default 0. Below 0.001 sampling is greedy."""
    top_k: int | None
    """Tokens are drawn only from this number of the most likely ones; by default 0, which is off."""
    top_p: float | None
    """Tokens are drawn only from the most likely ones that together reach this probability; by default 1, off."""
    min_p: float | None
    """Tokens are drawn only if their probability is at least this part of the most likely one's; by default 0, off."""
    seed: int | None
    """The same seed and prompt give the same output; by default the gateway assigns one."""
    stop: str | Sequence[str] | None
    """At most 16 strings at which the output ends; the output does not contain them."""
    stop_token_ids: Sequence[int] | None
    """Ids of tokens at which the output ends."""
    ignore_eos: bool | None
    """Whether to continue after the end-of-sequence token; by default False."""
    min_tokens: int | None
    """The number of output tokens before which no end-of-sequence or stop token is generated; by default 0."""
    repetition_penalty: float | None
    """A divisor for the scores of tokens that occur in the prompt or output, 0.01 to 10; by default 1, which is off."""
    presence_penalty: float | None
    """A value subtracted from the scores of tokens that occur in the output, -2 to 2; by default 0, which is off."""
    frequency_penalty: float | None
    """A value subtracted from a token's score for each occurrence in the output, -2 to 2; by default 0, off."""
    logprobs: int | None
    """The number of most likely alternatives whose log-probabilities are reported beside each output token's own.

    By default no log-probabilities are reported.
    """
    prompt_logprobs: int | None
    """The same number for the tokens of the prompt, which is then computed whole, without the prefix cache."""
    logit_bias: Mapping[int, float] | None
    """Values added to the scores of tokens, by token id: at most 300, each -100 to 100; by default none."""
    json_object: bool | None
    """Whether the output has to be a JSON object. Of this option and the next four, only one may be given."""
    json_schema: str | Mapping[str, Any] | bool | None
    """A JSON schema, parsed or as text: the output has to be JSON that is valid under it."""
    regex: str | None
    """A regular expression that has to match the whole output."""
    choice: Sequence[str] | None
    """The texts, at most 1024, of which the output has to be one."""
    grammar: str | None
    """A grammar in Lark's notation: the output has to be a text that its rule `start` derives."""


class CallOptions(SamplingOptions, total=False):
    """The keyword arguments of every call, beside `app`."""

    model: str | None
    """The model's name; by default the only model that the gateway serves."""
    timeout: float | None
    """The limit for the call with all its retries, in seconds; by default there is no limit."""
    each_token: bool | None
    """Whether every chunk holds a single token; by default a chunk may hold several."""


class ChatOptions(CallOptions, total=False):
    """The keyword arguments of chats: those of every call, and how the model's chat template renders the messages."""

    add_generation_prompt: bool | None
    """Whether the prompt ends with the beginning of an answer; by default True, unless a message is continued."""
    continue_final_message: bool | None
    """Whether the output goes on from the end of the last message, as if it were not complete; by default False."""
    chat_template_kwargs: Mapping[str, Any] | None
    """Variables for the chat template, such as `{"enable_thinking": False}`: JSON of at most 4 KiB; by default none."""
    tools: Sequence[Tool] | None
    """Functions that the model may call, at most 128; by default none. Models without a known format refuse them."""
    tool_choice: str | None
    """The name of the tool that the model has to call, or "required" for one or more of any; by default it decides."""
    parallel_tool_calls: bool | None
    """Whether an output with a required call, or with strict tools, may have several calls; by default True."""
