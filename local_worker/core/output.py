"""The output of an attempt: tokens with everything that leaves the worker with them."""

from collections.abc import Sequence
from itertools import chain
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


class Output(NamedTuple):  # the only object that is made for each token between the batcher and the message
    """New `tokens` of an attempt and the `text` that they release."""

    request_id: str
    attempt: int
    tokens: Sequence[int]
    text: str
    logprobs: Sequence[SpelledLogprobs]  # one per token; empty unless the caller requested them
    service: int  # received by the attempt so far, in micro-units of cost
    prompt_logprobs: Sequence[SpelledLogprobs] = ()  # with the first token: one per token of the prompt


def joined(outputs: Sequence[Output]) -> Output:
    """Return consecutive outputs of one attempt, at least one, as one output."""
    if len(outputs) == 1:
        return outputs[0]
    requests, attempts, tokens, texts, logprobs, services, prompts = zip(*outputs, strict=True)
    text, scores = "".join(texts), [*chain(*prompts)]
    return Output(requests[0], attempts[0], [*chain(*tokens)], text, [*chain(*logprobs)], services[-1], scores)
