"""Sampling parameters, their limits and the checks of them."""

from dataclasses import dataclass, replace

from fairlead.errors import InvalidRequest
from serving.constraint import Constraint

MAX_STOP_STRINGS = 16
MAX_STOP_CHARACTERS = 256
MAX_STOP_TOKENS = 64
MAX_TEMPERATURE = 100.0
# Below this temperature sampling is greedy, because logits divided by a smaller number overflow.
LEAST_TEMPERATURE = 1e-3
MAX_PENALTY = 2.0
MAX_REPETITION_PENALTY = 10.0
LEAST_REPETITION_PENALTY = 0.01
MAX_LOGPROBS = 20
MAX_BIASED_TOKENS = 300
MAX_LOGIT_BIAS = 100.0
# The limits of each number that has constant ones; None as the largest: there is no limit.
RANGES: tuple[tuple[str, float, float | None], ...] = (
    ("max_tokens", 1, None),
    ("temperature", 0.0, MAX_TEMPERATURE),
    ("top_k", 0, None),
    ("top_p", 0.0, 1.0),
    ("min_p", 0.0, 1.0),
    ("repetition_penalty", LEAST_REPETITION_PENALTY, MAX_REPETITION_PENALTY),
    ("presence_penalty", -MAX_PENALTY, MAX_PENALTY),
    ("frequency_penalty", -MAX_PENALTY, MAX_PENALTY),
    ("logprobs", 0, MAX_LOGPROBS),
    ("prompt_logprobs", 0, MAX_LOGPROBS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Sampling parameters with every default resolved.

    A value beyond its limit raises InvalidRequest, which names the field, the limit and the value.
    """

    max_tokens: int = 128
    min_tokens: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None  # number of alternatives to report beside the chosen token; None: no report
    prompt_logprobs: int | None = None  # the same for the tokens of the prompt
    logit_bias: tuple[tuple[int, float], ...] = ()  # pairs of token id and value added to the token's score
    constraint: Constraint | None = None  # the texts that the output may be; None: all

    def after(self, output_tokens: int) -> "SamplingParams":
        """Return the parameters for the rest of an output whose first `output_tokens` tokens exist already."""
        left = self.max_tokens - output_tokens
        return replace(self, max_tokens=left, min_tokens=max(0, self.min_tokens - output_tokens))

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is always chosen."""
        return self.temperature < LEAST_TEMPERATURE

    @property
    def has_penalties(self) -> bool:
        """Whether earlier tokens change the distribution."""
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0

    @property
    def has_logprobs(self) -> bool:
        """Whether log-probabilities are reported, of the output or of the prompt."""
        return self.logprobs is not None or self.prompt_logprobs is not None

    @property
    def is_truncated(self) -> bool:
        """Whether unlikely tokens are excluded from sampling."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0

    def __post_init__(self) -> None:
        for field, low, high in RANGES:
            value = getattr(self, field)
            # The condition is written so that NaN fails it.
            if value is not None and not (low <= value and (high is None or value <= high)):
                raise _beyond(field, value, low, high)
        if not 0 <= self.min_tokens <= self.max_tokens:
            raise _beyond("min_tokens", self.min_tokens, 0, self.max_tokens)
        if self.top_p == 0.0:
            raise InvalidRequest("must be above 0, got 0.0", "sampling.top_p")
        check_biases(len(self.logit_bias))
        for token, bias in self.logit_bias:
            if not -MAX_LOGIT_BIAS <= bias <= MAX_LOGIT_BIAS:
                raise _beyond(f"logit_bias[{token}]", bias, -MAX_LOGIT_BIAS, MAX_LOGIT_BIAS)
        check_stops(len(self.stop), len(self.stop_token_ids))
        for text in self.stop:
            if not text:
                raise InvalidRequest("a stop string must not be empty", "sampling.stop")
            if len(text) > MAX_STOP_CHARACTERS:
                raise _too_many("stop", len(text), MAX_STOP_CHARACTERS, "characters in a stop string")
        if self.constraint is not None and (self.ignore_eos or self.min_tokens):
            raise InvalidRequest(
                "not together with ignore_eos or min_tokens, since the output ends when it is complete",
                self.constraint.field,
            )


def check_stops(strings: int, token_ids: int) -> None:
    """Raise InvalidRequest for more stop strings or stop token ids than a call may have."""
    if strings > MAX_STOP_STRINGS:
        raise _too_many("stop", strings, MAX_STOP_STRINGS, "stop strings")
    if token_ids > MAX_STOP_TOKENS:
        raise _too_many("stop_token_ids", token_ids, MAX_STOP_TOKENS, "stop token ids")


def check_biases(token_ids: int) -> None:
    """Raise InvalidRequest for biases of more tokens than a call may have."""
    if token_ids > MAX_BIASED_TOKENS:
        raise _too_many("logit_bias", token_ids, MAX_BIASED_TOKENS, "token ids")


def _beyond(field: str, value: float, low: float, high: float | None) -> InvalidRequest:
    limit = f"at least {low}" if high is None else f"between {low} and {high}"
    got = (
        float(f"{value:.7g}") if isinstance(value, float) else value
    )  # as it was given: a message makes 2.0999999 of 2.1
    return InvalidRequest(f"must be {limit}, got {got}", f"sampling.{field}")


def _too_many(field: str, count: int, limit: int, what: str) -> InvalidRequest:
    return InvalidRequest(f"at most {limit} {what}, got {count}", f"sampling.{field}")
