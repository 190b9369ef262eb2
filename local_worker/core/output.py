"""The output of an attempt: tokens with everything that leaves the worker with them."""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from local_worker.core.batch import SampledLogprobs


class Output(NamedTuple):
    """New `tokens` of an attempt and the `text` that they release."""

    tokens: Sequence[int]
    text: str
    logprobs: Sequence[SampledLogprobs]  # one per token; empty unless the caller requested them
    service: int  # received by the attempt so far, in micro-units of cost


def joined(outputs: Sequence[Output]) -> Output:
    """Return consecutive outputs of one attempt, at least one, as one output."""
    if len(outputs) == 1:
        return outputs[0]
    tokens, texts, logprobs, services = zip(*outputs, strict=True)
    return Output([*chain(*tokens)], "".join(texts), [*chain(*logprobs)], services[-1])
