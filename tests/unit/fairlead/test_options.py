"""Options are the wire's own, and None is what is not said."""

from typing import get_type_hints

import pytest

from fairlead.errors import InvalidRequest
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
        json_object=None,
        json_schema=None,
        regex=None,
        choice=None,
        grammar=None,
    )
    assert set(nothing) == set(get_type_hints(SamplingOptions))
    assert as_sampling(nothing) == common_pb2.SamplingParams()
    assert as_sampling({"max_tokens": 3, "stop": ["a", "b"]}) == common_pb2.SamplingParams(
        max_tokens=3, stop=["a", "b"]
    )


def test_an_output_has_one_constraint() -> None:
    schema = {"type": "object"}
    assert as_sampling({"json_schema": schema}) == as_sampling({"json_schema": '{"type": "object"}'})
    assert list(as_sampling({"choice": ["yes", "no"]}).choice.texts) == ["yes", "no"]
    assert list(as_sampling({"choice": "yes"}).choice.texts) == ["yes"]
    assert as_sampling({"json_object": True}).WhichOneof("constraint") == "json_object"
    with pytest.raises(InvalidRequest, match=r"sampling\.regex: not together with json_object") as refused:
        as_sampling({"json_object": True, "regex": "a"})
    assert refused.value.field == "sampling.regex"


def test_a_schema_that_is_not_json_is_refused() -> None:
    deep: dict[str, object] = {}
    for _ in range(100_000):
        deep = {"not": deep}
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        as_sampling({"json_schema": deep})
    with pytest.raises(InvalidRequest, match=r"sampling\.json_schema: .*not JSON serializable"):
        as_sampling({"json_schema": {"type": object}})
