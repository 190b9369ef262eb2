"""Anthropic's own client: its types, streams and errors, against a running cluster."""

import pytest

from tests.services import Process
from tests.unit.gateway.http.clients import run
from tests.unit.gateway.http.http_client import HttpClient

CLIENT = "anthropic"
HEAD = """
import asyncio, sys
import anthropic

client = anthropic.Anthropic(base_url=sys.argv[1], api_key="any", max_retries=0)
body = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 6}
extra = {"ignore_eos": True, "seed": 1}
"""
CALLS = """
def checked(model):
    type(model).model_validate(model.model_dump(), strict=True)
    return model

whole = checked(client.messages.create(**body, system="Be brief.", extra_body=extra))
assert isinstance(whole, anthropic.types.Message) and whole._request_id in whole.id
text = whole.content[0].text
assert len(text) == 6 and whole.usage.output_tokens == 6 and whole.stop_reason == "max_tokens"
events = [checked(event) for event in client.messages.create(**body, system="Be brief.", stream=True, extra_body=extra)]
kinds = [event.type for event in events]
assert kinds[:2] == ["message_start", "content_block_start"] and kinds[-2:] == ["message_delta", "message_stop"], kinds
assert "".join(event.delta.text for event in events if event.type == "content_block_delta") == text
with client.messages.stream(**body, system="Be brief.", extra_body=extra) as stream:
    assert "".join(stream.text_stream) == text
    message = checked(stream.get_final_message())
    assert message.content[0].text == text and message.usage.output_tokens == 6 and message.stop_reason == "max_tokens"

counted = client.messages.count_tokens(model="tiny", messages=body["messages"], system="Be brief.")
assert counted.input_tokens == whole.usage.input_tokens + whole.usage.cache_read_input_tokens

models = client.models.list()
assert [checked(model).id for model in models] == ["tiny"] and models.has_more is False
model = checked(client.models.retrieve("tiny"))
assert (model.type, model.display_name, model.max_input_tokens) == ("model", "tiny", 2048)

async def many():
    async with anthropic.AsyncAnthropic(base_url=sys.argv[1], api_key="any") as other:
        messages = await asyncio.gather(*[other.messages.create(**body, extra_body=extra) for _ in range(10)])
        assert {message.content[0].text for message in messages} == {messages[0].content[0].text}

asyncio.run(many())
print("done")
"""
ERRORS = """
def refused(kind, **fields):
    try:
        client.messages.create(**body | fields)
    except kind as error:
        assert type(error) is kind, error
        assert error.request_id
        return error
    raise AssertionError(f"{fields} are accepted")

assert refused(anthropic.NotFoundError, model="none").type == "not_found_error"
tools = [{"name": "f", "input_schema": {"type": "object"}}]
forced = {"tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "tool", "name": "f"}, "max_tokens": 100}
used = client.messages.create(**body | forced)
assert used.stop_reason == "tool_use" and [block.name for block in used.content] == ["f"]
other = {"type": "tool", "name": "other"}
assert "tool_choice: " in refused(anthropic.BadRequestError, tools=tools, tool_choice=other).message
thinking = {"type": "enabled", "budget_tokens": 1024}
assert client.messages.create(**body | {"thinking": thinking}).type == "message"
try:
    body["max_tokens"], headers = 1900, {"x-fairlead-timeout": "0.001"}
    for _ in client.messages.create(**body, stream=True, extra_body=extra, extra_headers=headers):
        pass
except anthropic.APIStatusError as error:
    assert error.type == "timeout_error", error
else:
    raise AssertionError("an error is not seen")
print("done")
"""


@pytest.mark.parametrize("program", [CALLS, ERRORS], ids=["calls", "errors"])
def test_its_calls(shared: tuple[Process, HttpClient], program: str) -> None:
    _, http = shared
    assert run(CLIENT, HEAD + program, f"http://127.0.0.1:{http.port}") == "done\n"
