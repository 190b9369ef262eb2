"""What a call may say beside its prompt. Options that are absent or None take their defaults."""

from collections.abc import Sequence
from typing import TypedDict


class SamplingOptions(TypedDict, total=False):
    """How tokens are chosen, and when the output ends: SamplingParams of common.proto."""

    max_tokens: int | None
    """The most tokens of output; by default 128."""
    temperature: float | None
    """0 to 100. By default 0, which is greedy, as is whatever is below 0.001."""
    top_k: int | None
    """Only the so many most likely tokens are drawn from; by default 0, which is off."""
    top_p: float | None
    """Only the most likely tokens that together reach this probability are drawn from; by default 1, which is off."""
    min_p: float | None
    """Only tokens at least so likely, relative to the most likely one, are drawn from; by default 0, which is off."""
    seed: int | None
    """The same seed and prompt give the same output; by default the gateway assigns one."""
    stop: str | Sequence[str] | None
    """Strings, 16 at most, at which the output ends; they are no part of it."""
    stop_token_ids: Sequence[int] | None
    """Tokens at which the output ends."""
    ignore_eos: bool | None
    """Go on after the end-of-sequence token; by default False."""
    min_tokens: int | None
    """No end-of-sequence or stop token before so many tokens of output; by default 0."""
    repetition_penalty: float | None
    """Divides the scores of tokens of prompt and output, 0.01 to 10; by default 1, which is off."""
    presence_penalty: float | None
    """Is taken from the scores of tokens of the output, -2 to 2; by default 0, which is off."""
    frequency_penalty: float | None
    """Is taken from a token's score for each time the output has it, -2 to 2; by default 0, which is off."""
    logprobs: int | None
    """Report each output token's log-probability, and so many of the most likely alternatives; by default none."""


class CallOptions(SamplingOptions, total=False):
    """The keyword arguments of every call, beside `app`."""

    model: str | None
    """By default the only model that the gateway serves."""
    timeout: float | None
    """Seconds for the call with all its retries; by default it may take for ever."""
    each_token: bool | None
    """One chunk per token, where by default a chunk may hold several."""
