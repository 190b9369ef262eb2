"""How tokens are chosen, by the names that the APIs and vLLM have for it."""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from fairlead.v1 import common_pb2
from serving.sampling_params import check_stops

Natural = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
Maximum = Annotated[int, msgspec.Meta(ge=0)]  # of tokens; programs send the largest integer of their language
SEEDS = 2**64
LEAST_TOP_P = 1e-9  # the APIs allow 0, engines do not: the most likely token alone


class Sampling(msgspec.Struct, kw_only=True):
    """Fields of every API; absent and null mean the engine's default, but for the temperature, which is 1 then."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: Annotated[int, msgspec.Meta(ge=-1, le=2**32 - 1)] | None = None
    min_p: float | None = None
    stop_token_ids: list[Natural] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    min_tokens: Natural | None = None
    ignore_eos: bool | None = None

    def parameters(self, max_tokens: int | None, stop: Sequence[str] | None) -> common_pb2.SamplingParams:
        """Return how tokens are chosen, up to `max_tokens` of them or to one of the texts `stop`.

        Raise InvalidRequest for more stops than a call may have.
        """
        check_stops(len(stop or ()), len(self.stop_token_ids or ()))
        return common_pb2.SamplingParams(
            max_tokens=None if max_tokens is None else bounded(max_tokens),
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=LEAST_TOP_P if self.top_p == 0 else self.top_p,
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


def bounded(maximum: int) -> int:
    """Return a maximum of tokens as messages can have it: no context is as long."""
    return min(maximum, 2**32 - 1)


def drawn(sampling: common_pb2.SamplingParams, number: int) -> common_pb2.SamplingParams:
    """Return `sampling` for choice `number` of a prompt: of a given seed, each choice draws with one of its own."""
    if number == 0 or not sampling.HasField("seed"):
        return sampling
    other = common_pb2.SamplingParams()
    other.CopyFrom(sampling)
    other.seed = (sampling.seed + number) % SEEDS
    return other
