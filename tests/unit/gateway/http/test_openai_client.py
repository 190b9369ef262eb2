"""OpenAI's own client: its types, streams and errors, against a running cluster."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.services import Stack, eventually
from tests.unit.gateway.http.clients import run
from tests.unit.gateway.http.conftest import serving
from tests.unit.gateway.http.http_client import TEXT, HttpClient

CLIENT = "openai"
HEAD = """
import asyncio, sys
import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="any", max_retries=0)
messages = [{"role": "user", "content": "hello"}]
body = {"ignore_eos": True}
"""
CALLS = """
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk

def checked(model):
    type(model).model_validate(model.model_dump(), strict=True)
    return model

[model] = client.models.list().data
assert checked(model) == client.models.retrieve(model.id) and isinstance(model, Model)
create = client.chat.completions.create
whole = checked(create(model=model.id, messages=messages, max_tokens=6, seed=1, extra_body=body))
assert isinstance(whole, ChatCompletion) and whole._request_id in whole.id
text = whole.choices[0].message.content
assert len(text) == 6 and whole.usage.completion_tokens == 6 and whole.choices[0].finish_reason == "length"
stream = client.chat.completions.create(
    model=model.id, messages=messages, max_tokens=6, seed=1, stream=True, stream_options={"include_usage": True},
    extra_body=body,
)
*chunks, last = [checked(chunk) for chunk in stream]
assert all(isinstance(chunk, ChatCompletionChunk) for chunk in chunks)
assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text
assert chunks[0].choices[0].delta.role == "assistant" and last.usage.completion_tokens == 6
with client.chat.completions.stream(model=model.id, messages=messages, max_tokens=6, seed=1, extra_body=body) as events:
    assert "".join(event.delta for event in events if event.type == "content.delta") == text
completion = checked(client.completions.create(model=model.id, prompt=["a", "b"], max_tokens=3, n=2, extra_body=body))
assert isinstance(completion, Completion) and len(completion.choices) == 4
pieces = client.completions.create(model=model.id, prompt=[5, 6, 7], max_tokens=3, stream=True, extra_body=body)
assert len("".join(piece.choices[0].text for piece in pieces)) == 3  # of no reason to end yet, the types know nothing

async def many():
    async with openai.AsyncOpenAI(base_url=sys.argv[1], api_key="any") as other:
        ask = other.chat.completions.create
        calls = [ask(model=model.id, messages=messages, max_tokens=4, extra_body=body) for _ in range(20)]
        assert [len(each.choices[0].message.content) for each in await asyncio.gather(*calls)] == [4] * 20

asyncio.run(many())
print("done")
"""
ERRORS = """
def refused(kind, **fields):
    try:
        client.chat.completions.create(**{"model": "tiny", "messages": messages, "max_tokens": 1} | fields)
    except kind as error:
        assert type(error) is kind, error
        assert error.request_id
        return error
    raise AssertionError(f"{fields} are accepted")

assert refused(openai.NotFoundError, model="none").code == "model_not_found"
too_long = refused(openai.BadRequestError, messages=[{"role": "user", "content": "x" * 9000}])
assert too_long.code == "context_length_exceeded" and "maximum context length" in too_long.message
assert refused(openai.BadRequestError, temperature=-1).param == "temperature"
tools = [{"type": "function", "function": {"name": "f"}}]
[choice] = client.chat.completions.create(
    model="tiny", messages=messages, tools=tools, tool_choice="required", parallel_tool_calls=False, max_tokens=100
).choices
[call] = choice.message.tool_calls
assert (choice.finish_reason, call.function.name, call.function.arguments) == ("tool_calls", "f", "{}")
named = {"type": "function", "name": "f"}
called = client.responses.create(model="tiny", input="hello", tools=[named], tool_choice=named)
assert [(item.type, item.name, item.arguments) for item in called.output] == [("function_call", "f", "{}")]
unknown = {"type": "function", "function": {"name": "g"}}
assert refused(openai.BadRequestError, tools=tools, tool_choice=unknown).param == "tool_choice"
try:
    for _ in client.chat.completions.create(
        model="tiny", messages=messages, stream=True, extra_body=body, extra_headers={"x-fairlead-timeout": "1"}
    ):
        pass
except openai.APIError as error:
    assert error.code == "deadline_exceeded", error
else:
    raise AssertionError("an error within a stream is not seen")

async def leave():
    async with openai.AsyncOpenAI(base_url=sys.argv[1], api_key="any") as other:
        stream = await other.chat.completions.create(
            model="tiny", messages=messages, max_tokens=4000, stream=True, extra_body=body
        )
        async for _ in stream:
            break
        await stream.close()

asyncio.run(leave())
print("done")
"""


CONSTRAINTS = """
import pydantic

class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=5)
    age: int = pydantic.Field(ge=0, le=150)

where = {"model": "tiny", "messages": messages, "max_tokens": 400, "seed": 1}
parsed = client.chat.completions.parse(response_format=Person, **where).choices[0].message.parsed
assert isinstance(parsed, Person)
with client.chat.completions.stream(response_format=Person, **where) as events:
    *_, done = (event for event in events if event.type == "content.done")
assert done.parsed == parsed
response = client.responses.parse(model="tiny", input="hello", text_format=Person, max_output_tokens=400)
assert isinstance(response.output_parsed, Person)

class Unheard(pydantic.BaseModel):
    tags: list[str] = pydantic.Field(json_schema_extra={"uniqueItems": True})

try:
    client.chat.completions.parse(response_format=Unheard, **where)
except openai.BadRequestError as error:
    assert error.param == "response_format" and "uniqueItems" in error.message
else:
    raise AssertionError("what cannot be compiled is accepted")
print("done")
"""
RETRIES = """
patient = client.with_options(max_retries=20)
print(len(patient.completions.create(model="tiny", prompt="hello", max_tokens=3, extra_body=body).choices[0].text))
"""


def test_calls_streams_and_types(http: HttpClient) -> None:
    assert run(CLIENT, HEAD + CALLS, f"http://127.0.0.1:{http.port}/v1") == "done\n"


def test_schemas_are_obeyed(http: HttpClient) -> None:
    assert run(CLIENT, HEAD + CONSTRAINTS, f"http://127.0.0.1:{http.port}/v1") == "done\n"


def test_errors_have_their_classes_and_whoever_leaves_a_stream_cancels_its_call(stack: Stack) -> None:
    stack.worker("a", model="tiny", engine="fake:0.02")
    gateway, http = serving(stack)
    assert run(CLIENT, HEAD + ERRORS, f"http://127.0.0.1:{http.port}/v1") == "done\n"
    eventually(lambda: gateway.logged("call ended")[-1]["outcome"] == "CANCELLED", "the call that was left ends")


def test_it_comes_again_when_it_is_told_to(stack: Stack) -> None:
    stack.worker("a", model="tiny", engine="fake:0.02")
    gateway, http = serving(stack, max_streams_per_client=1)
    with ThreadPoolExecutor() as threads:
        with http.begin(TEXT, {"prompt": "hello", "max_tokens": 4000, "ignore_eos": True}):
            eventually(lambda: stack.requests() == 1, "the client's one place is taken")
            answer = threads.submit(run, CLIENT, HEAD + RETRIES, f"http://127.0.0.1:{http.port}/v1")
            eventually(lambda: "CLIENT_LIMIT" in gateway.log, "the client is refused")
        assert answer.result() == "3\n"


def test_the_program_of_the_readme_runs(http: HttpClient) -> None:
    blocks = re.findall(r"```python\n(.*?)```", Path("README.md").read_text(), re.DOTALL)
    [code] = [block for block in blocks if "import openai" in block]
    assert run(CLIENT, code.replace("127.0.0.1:8000", f"127.0.0.1:{http.port}"))
