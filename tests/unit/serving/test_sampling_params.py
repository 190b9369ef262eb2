"""Limits of sampling parameters: what is accepted, what is refused, and by which name."""

import math
from typing import Any

import pytest

from fairlead.errors import InvalidRequest
from serving.sampling_params import (
    MAX_STOP_CHARACTERS,
    MAX_STOP_STRINGS,
    MAX_STOP_TOKENS,
    MAX_TEMPERATURE,
    SamplingParams,
)

ACCEPTED: list[dict[str, Any]] = [
    {},
    {"max_tokens": 1},
    {"temperature": 0.0},
    {"temperature": MAX_TEMPERATURE},
    {"top_k": 0},
    {"top_p": 1e-6},
    {"top_p": 1.0},
    {"min_p": 0.0},
    {"min_p": 1.0},
    {"seed": 2**64 - 1},
    {"stop": ("x" * MAX_STOP_CHARACTERS,) * MAX_STOP_STRINGS},
    {"stop_token_ids": tuple(range(MAX_STOP_TOKENS))},
]
REFUSED: list[tuple[str, Any, str]] = [
    ("max_tokens", 0, "must be at least 1, got 0"),
    ("temperature", -0.1, "between 0.0 and 100.0, got -0.1"),
    ("temperature", MAX_TEMPERATURE * 1.01, "between 0.0 and 100.0"),
    ("temperature", math.nan, "got nan"),
    ("temperature", math.inf, "got inf"),
    ("top_k", -1, "must be at least 0, got -1"),
    ("top_p", 0.0, "must be above 0"),
    ("top_p", 1.01, "between 0.0 and 1.0"),
    ("top_p", math.nan, "got nan"),
    ("min_p", -0.01, "between 0.0 and 1.0"),
    ("min_p", 1.01, "between 0.0 and 1.0"),
    ("min_p", math.nan, "got nan"),
    ("repetition_penalty", 0.001, "between 0.01 and 10.0, got 0.001"),
    ("stop", ("x",) * (MAX_STOP_STRINGS + 1), "at most 16 stop strings, got 17"),
    ("stop", ("fine", ""), "must not be empty"),
    ("stop", ("x" * (MAX_STOP_CHARACTERS + 1),), "at most 256 characters in a stop string, got 257"),
    ("stop_token_ids", tuple(range(MAX_STOP_TOKENS + 1)), "at most 64 stop token ids, got 65"),
]


@pytest.mark.parametrize("given", ACCEPTED)
def test_the_limits_themselves_are_accepted(given: dict[str, Any]) -> None:
    sampling = SamplingParams(**given)
    assert {name: getattr(sampling, name) for name in given} == given


@pytest.mark.parametrize(("field", "value", "expected"), REFUSED)
def test_a_refusal_names_field_limit_and_value(field: str, value: Any, expected: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        SamplingParams(**{field: value})
    assert caught.value.field == f"sampling.{field}"
    assert expected in caught.value.message


def test_the_rest_of_an_output_needs_the_tokens_that_are_left() -> None:
    params = SamplingParams(max_tokens=10, min_tokens=4, seed=7)
    assert params.after(3) == SamplingParams(max_tokens=7, min_tokens=1, seed=7)
    assert params.after(9) == SamplingParams(max_tokens=1, min_tokens=0, seed=7)
