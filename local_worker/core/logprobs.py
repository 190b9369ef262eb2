"""Log-probabilities as they leave the worker: by the bytes of tokens."""

from collections.abc import Sequence
from typing import NamedTuple

from local_worker.core.batch import SampledLogprobs
from local_worker.core.output_text import Text


class TopLogprob(NamedTuple):
    """A likely token by its id and its bytes, with its log-probability."""

    id: int
    token: bytes
    logprob: float


class SpelledLogprobs(NamedTuple):
    """The bytes of a token with its log-probability, and the most likely tokens at its position, best first."""

    token: bytes
    logprob: float
    top: tuple[TopLogprob, ...]


def spelled(token: int, found: SampledLogprobs, text: Text) -> SpelledLogprobs:
    """Return what the engine has `found` for `token`, with the bytes of all tokens."""
    top = tuple(TopLogprob(likely, text.token_bytes(likely), logprob) for likely, logprob in found.top)
    return SpelledLogprobs(text.token_bytes(token), found.logprob, top)


def spelled_prompt(tokens: Sequence[int], scores: Sequence[SampledLogprobs], text: Text) -> list[SpelledLogprobs]:
    """Return the log-probabilities of a prompt's `tokens`; `scores` has none for the first token, whose value is 0."""
    first = SpelledLogprobs(text.token_bytes(tokens[0]), 0.0, ())
    return [first, *(spelled(token, found, text) for token, found in zip(tokens[1:], scores, strict=True))]
