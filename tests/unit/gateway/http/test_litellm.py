"""LiteLLM, which many programs call models through, against a running cluster."""

import subprocess

import pytest

from tests.unit.gateway.http.clients import python_with
from tests.unit.gateway.http.http_client import HttpClient

pytestmark = [pytest.mark.clients, pytest.mark.e2e, pytest.mark.slow]  # the import alone takes seconds

CLIENT = "litellm"
PROGRAM = """
import asyncio, os, sys
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the network for prices
import litellm

litellm.suppress_debug_info = True
where = {"api_base": sys.argv[1], "api_key": "any", "max_retries": 0}
chat = {
    **where, "model": "openai/tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 6, "seed": 1,
    "extra_body": {"ignore_eos": True},
}
whole = litellm.completion(**chat)
text = whole.choices[0].message.content
assert len(text) == 6 and whole.usage.completion_tokens == 6 and whole.choices[0].finish_reason == "length"
pieces = list(litellm.completion(**chat, stream=True, stream_options={"include_usage": True}))
assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == text
assert pieces[-1].usage.completion_tokens == 6
assert asyncio.run(litellm.acompletion(**chat)).choices[0].message.content == text
completion = litellm.text_completion(**where, model="text-completion-openai/tiny", prompt="hello", max_tokens=3)
assert completion.usage.completion_tokens <= 3

def refused(kind, **fields):
    try:
        litellm.completion(**chat | fields)
    except kind as error:
        assert type(error) is kind, error
        return str(error)
    raise AssertionError(f"{fields} are accepted")

refused(litellm.ContextWindowExceededError, messages=[{"role": "user", "content": "x" * 9000}])
assert "models served: tiny" in refused(litellm.NotFoundError, model="openai/none")
assert "temperature" in refused(litellm.BadRequestError, temperature=-1)
assert litellm.completion(**chat, logprobs=True).choices[0].logprobs.content
assert "top_logprobs" in refused(litellm.BadRequestError, top_logprobs=2)
print("done")
"""


def test_calls_streams_and_errors_by_class(http: HttpClient) -> None:
    # A process of its own: what LiteLLM does when it is imported depends on the environment.
    command = [str(python_with(CLIENT)), "-W", "error", "-c", PROGRAM, f"http://127.0.0.1:{http.port}/v1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("done\n")
