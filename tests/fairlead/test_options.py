"""Options are the wire's own, and None is what is not said."""

from typing import get_type_hints

from fairlead.options import SamplingOptions
from fairlead.prompt import as_sampling
from fairlead.v1 import common_pb2


def test_the_options_are_the_fields_of_the_wire() -> None:
    assert set(get_type_hints(SamplingOptions)) == set(common_pb2.SamplingParams.DESCRIPTOR.fields_by_name)


def test_none_is_the_default() -> None:
    nothing = SamplingOptions(
        max_tokens=None,
        temperature=None,
        top_k=None,
        top_p=None,
        min_p=None,
        seed=None,
        stop=None,
        stop_token_ids=None,
        ignore_eos=None,
        min_tokens=None,
        repetition_penalty=None,
        presence_penalty=None,
        frequency_penalty=None,
        logprobs=None,
        prompt_logprobs=None,
        logit_bias=None,
    )
    assert set(nothing) == set(get_type_hints(SamplingOptions))
    assert as_sampling(nothing) == common_pb2.SamplingParams()
    assert as_sampling({"max_tokens": 3, "stop": ["a", "b"]}) == common_pb2.SamplingParams(
        max_tokens=3, stop=["a", "b"]
    )
