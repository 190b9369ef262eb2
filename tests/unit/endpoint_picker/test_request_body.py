"""Prompts in the bodies of OpenAI's and Anthropic's requests, and their blocks."""

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endpoint_picker.request_body import PIECE, Prompt, prompt_of
from endpoint_picker.token_prompts import TokenPrompts
from fairlead.token_ids import pack_ids
from serving.blocks import chain, root_seed, unpack_digests

LONG = "word " * 400
BLOCK_TOKENS = 64
JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda each: (
    st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=3), each, max_size=3)
), max_leaves=8)  # fmt: skip
FIELDS = ("model", "messages", "prompt", "input", "system", "tools", "max_tokens", "cache_salt", "role", "content")


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", **fields}).encode()


async def common(first: bytes, second: bytes) -> int:
    """How many blocks two bodies' prompts begin with alike."""
    one, other = [await prompt_of(each).digests(BLOCK_TOKENS) for each in (first, second)]
    return [a == b for a, b in zip(unpack_digests(one), unpack_digests(other), strict=False)].count(True)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            {"messages": [{"role": "system", "content": LONG}, {"role": "user", "content": "a"}]},
            {
                "messages": [
                    {"role": "system", "content": [{"type": "text", "text": LONG}]},
                    {"role": "user", "content": "b"},
                ]
            },
        ),
        (
            {"system": LONG, "messages": []},
            {"system": [{"type": "text", "text": LONG, "cache_control": {}}], "messages": []},
        ),
        ({"prompt": LONG}, {"prompt": [LONG + "x"], "temperature": 1}),
        ({"input": LONG}, {"input": [LONG], "max_output_tokens": 3}),
        ({"tools": [{"name": LONG}], "prompt": "a"}, {"prompt": "b", "tools": [{"name": LONG}]}),
        ({"prompt": list(range(500))}, {"prompt": [*range(500), 7]}),
    ],
)
async def test_equal_beginnings_have_equal_blocks(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert await common(body(**first), body(**second)) == 7


@pytest.mark.parametrize("other", [{"model": "other"}, {"cache_salt": "s"}])
async def test_models_and_salts_share_nothing(other: dict[str, Any]) -> None:
    assert await common(body(prompt=LONG), body(prompt=LONG, **other)) == 0


async def test_token_ids_are_cut_as_they_are() -> None:
    ids = [5] * 130
    prompt = prompt_of(body(prompt=ids))
    assert prompt.tokens == 130
    assert await prompt.digests(BLOCK_TOKENS) == chain(pack_ids(ids), BLOCK_TOKENS, root_seed("text", "m", ""))


async def test_pieces_of_a_long_prompt_are_one_chain() -> None:
    text = b"a" * (3 * PIECE + 300)
    assert await Prompt(text, 7).digests(BLOCK_TOKENS) == chain(text, BLOCK_TOKENS, 7)


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        ({}, None),
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 6, "max_tokens": 9}, 6),
        ({"max_tokens": -1}, None),
    ],
)
def test_the_limit_of_the_output_is_the_requests_own(limits: dict[str, int], most: int | None) -> None:
    assert prompt_of(body(prompt="a", **limits)).most_output == most


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from(FIELDS), JSON), st.binary(max_size=9))
def test_any_body_is_a_prompt(fields: dict[str, Any], garbage: bytes) -> None:
    for given_body in (json.dumps(fields).encode(), garbage, json.dumps(fields).encode()[:-1] + garbage):
        assert prompt_of(given_body).tokens >= 0


MIB = 1024 * 1024


def listed(head: str, item: str, tail: str) -> bytes:
    """JSON of 4 MiB with as many items as fit."""
    return (head + ",".join([item] * (4 * MIB // (len(item) + 1))) + tail).encode()


@pytest.mark.parametrize(
    "crafted",
    [
        listed('{"prompt":[', "[]", "]}"),
        listed('{"prompt":[', "1", "]}"),
        listed('{"prompt":[', "1234", "]}"),
        listed('{"prompt":[', '""', "]}"),
        listed('{"prompt":["x",', "[1]", "]}"),
        listed('{"messages":[', "{}", "]}"),
        listed('{"messages":[', '{"role":"u","content":"c"}', "]}"),
        listed('{"messages":[{"content":[', '""', "]}]}"),
        listed('{"messages":[{"content":[', '{"text":"x"}', "]}]}"),
        listed('{"system":[', "{}", "]}"),
        listed('{"input":[', "{}", "]}"),
        listed('{"input":[', '"x"', "]}"),
        listed('{"x":[', "{}", "]}"),
        b"{" + b",".join(b'"%d":1' % number for number in range(400_000)) + b"}",
        b'{"tools":' + b"[" * 2 * MIB + b"]" * 2 * MIB + b"}",
    ],
)
async def test_no_body_costs_much_more_time_than_a_text_of_its_length(crafted: bytes) -> None:
    prompts = TokenPrompts(list)
    began = time.process_time()
    for _ in range(3):
        await prompts.read(b'{"prompt":"' + b"a" * 4 * MIB + b'"}')
    text = time.process_time() - began
    began = time.process_time()
    await prompts.read(crafted)
    assert time.process_time() - began < 4 * text, "12 times the time of a text"
