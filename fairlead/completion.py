"""Results of a call: chunks, completions, usage and timings."""

from dataclasses import dataclass

from fairlead.outcomes import FinishReason
from fairlead.tools import ToolCall, ToolCallPiece


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call; `cached_tokens` and `system_tokens` are part of `prompt_tokens`."""

    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    system_tokens: int


@dataclass(frozen=True, slots=True)
class Timings:
    """The times at which the call reached each point, in Unix nanoseconds; 0: never reached (see common.proto)."""

    received: int
    admitted: int
    dispatched: int
    queued: int
    scheduled: int
    first_token: int
    finished: int

    @property
    def time_to_first_token(self) -> float:
        """The seconds from the call's arrival at the gateway to its first token at the worker; 0 if their clocks differ
        by more."""
        return max(0.0, (self.first_token - self.received) / 1e9)

    @property
    def duration(self) -> float:
        """The seconds from the call's arrival at the gateway to its last token at the worker; 0 if their clocks differ
        by more."""
        return max(0.0, (self.finished - self.received) / 1e9)


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """The model's log-probability of a token, and those of the most likely tokens at its position.

    `top` holds pairs of token id and log-probability, the most likely token first. `token` and `top_tokens` are the
    bytes of the token and of those of `top`; a token may be a part of a character. The first token of a prompt has no
    log-probability: its entry has only `token`, and the value 0.
    """

    logprob: float
    top: tuple[tuple[int, float], ...]
    token: bytes = b""
    top_tokens: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Chunk:
    """The next part of the output; `logprobs` has one entry per token if they were requested.

    Reasoning and tool calls are no part of `text`. A chunk has tokens and no text while it is open what they belong to.
    In the first chunk, `prompt_logprobs` has one entry per token of the prompt if they were requested.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    reasoning: str = ""
    tool_calls: tuple[ToolCallPiece, ...] = ()


@dataclass(frozen=True, slots=True)
class Completion:
    """The result of a call that completed, with the whole output."""

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...]
    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    request_id: str
    model: str
    worker: str
    app: str  # the app for which the call was counted: `default` if the gateway has no app of the given name
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()  # one per token of the prompt, if they were requested
    stop_string: str = ""  # the one that ended the output; empty if none did
    reasoning: str = ""  # what the model wrote before its answer, for itself; no part of `text`
    tool_calls: tuple[ToolCall, ...] = ()  # the calls that the model makes; no part of `text`
