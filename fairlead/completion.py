"""What a call gives back."""

from dataclasses import dataclass

from fairlead.outcomes import FinishReason


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call; `cached_tokens` and `system_tokens` are part of `prompt_tokens`."""

    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    system_tokens: int


@dataclass(frozen=True, slots=True)
class Timings:
    """When the call passed each point, Unix nanoseconds; 0 = never reached (see common.proto)."""

    received: int
    admitted: int
    dispatched: int
    queued: int
    scheduled: int
    first_token: int
    finished: int

    @property
    def time_to_first_token(self) -> float:
        """Seconds from the call's arrival at the gateway to its first token at the worker."""
        return (self.first_token - self.received) / 1e9

    @property
    def duration(self) -> float:
        """Seconds from the call's arrival at the gateway to its last token at the worker."""
        return (self.finished - self.received) / 1e9


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """The model's own log-probability of an output token, and of the most likely ones at its place, best first."""

    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some more output, as it came; `logprobs` one per token when asked for."""

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class Completion:
    """A call that completed."""

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...]
    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    request_id: str
    model: str
    worker: str
    app: str  # what the call counted as: `default` where the gateway does not know the one it named
