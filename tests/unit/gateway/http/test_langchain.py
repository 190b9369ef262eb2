"""LangChain's models of OpenAI, against a running cluster."""

import pytest

from tests.unit.gateway.http.clients import run
from tests.unit.gateway.http.http_client import HttpClient

pytestmark = pytest.mark.e2e

CLIENT = "langchain-openai"
PROGRAM = """
import asyncio, sys
import langchain_core.exceptions, openai
from langchain_openai import ChatOpenAI, OpenAI

where = {"model": "tiny", "base_url": sys.argv[1], "api_key": "any", "max_retries": 0}
chat = ChatOpenAI(**where, max_tokens=6, seed=1, extra_body={"ignore_eos": True})
whole = chat.invoke("hello")
assert len(whole.content) == 6 and whole.response_metadata["finish_reason"] == "length"
assert whole.usage_metadata["output_tokens"] == 6
pieces = list(chat.stream("hello", stream_usage=True))
assert "".join(piece.content for piece in pieces) == whole.content
assert [piece.usage_metadata["output_tokens"] for piece in pieces if piece.usage_metadata] == [6]
assert [len(each.content) for each in chat.batch(["a", "b", "c"])] == [6, 6, 6]
assert len(OpenAI(**where, max_tokens=4, extra_body={"ignore_eos": True}).invoke("hello")) == 4

async def later():
    assert (await chat.ainvoke("hello")).content == whole.content
    assert "".join([piece.content async for piece in chat.astream("hello")]) == whole.content

asyncio.run(later())

def refused(text, kind):
    try:
        chat.invoke(text)
    except kind as error:
        return error
    raise AssertionError("it is answered")

def add(a: int, b: int) -> int:
    "Add."
    return a + b

[call] = ChatOpenAI(**where, max_tokens=300, seed=1).bind_tools([add], tool_choice="add").invoke("hello").tool_calls
assert call["name"] == "add" and set(call["args"]) == {"a", "b"}, call
assert len(chat.bind_tools([add]).invoke("hello").content) == 6, "the model is told of tools and calls none"
schema = {
    "title": "Person", "type": "object", "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 150}},
    "required": ["age"], "additionalProperties": False,
}
free = ChatOpenAI(**where, max_tokens=100, seed=1)
assert 0 <= free.with_structured_output(schema).invoke("hello")["age"] <= 150
assert chat.bind(logprobs=True, max_tokens=2).invoke("hello").response_metadata["logprobs"]["content"]
refused("x" * 9000, langchain_core.exceptions.ContextOverflowError)
print("done")
"""


def test_calls_streams_and_what_is_refused(http: HttpClient) -> None:
    assert run(CLIENT, PROGRAM, f"http://127.0.0.1:{http.port}/v1") == "done\n"
