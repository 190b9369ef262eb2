"""The command `llm`, against a running cluster."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.gateway.http.clients import python_with
from tests.unit.gateway.http.http_client import HttpClient

pytestmark = pytest.mark.e2e

CLIENT = "llm"
MODELS = """
- {{model_id: chat, model_name: tiny, api_base: "{url}", supports_schema: true}}
- {{model_id: text, model_name: tiny, api_base: "{url}", completion: true}}
"""
Llm = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def llm(http: HttpClient, tmp_path: Path) -> Llm:
    """`llm("-m", "chat", "hello")` runs the command, which keeps its logs with the test."""
    (tmp_path / "extra-openai-models.yaml").write_text(MODELS.format(url=f"http://127.0.0.1:{http.port}/v1"))
    program = python_with(CLIENT).parent / "llm"

    def command(*arguments: str) -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, "LLM_USER_PATH": str(tmp_path)}
        return subprocess.run([program, *arguments, "--key", "any"], env=environment, capture_output=True, text=True)

    return command


def test_prompts_streams_and_conversations(llm: Llm) -> None:
    options = ("-o", "max_tokens", "6", "-o", "seed", "1", "--usage")
    streamed, whole = llm("-m", "chat", *options, "hello"), llm("-m", "chat", *options, "--no-stream", "hello")
    assert whole.returncode == 0, whole.stderr
    assert streamed.stdout == whole.stdout
    assert " output" in streamed.stderr.splitlines()[-1]
    assert " output" in whole.stderr.splitlines()[-1]
    assert llm("-c", *options, "and then?").returncode == 0
    assert llm("-m", "text", "-o", "max_tokens", "3", "hello").returncode == 0


def test_a_schema_is_obeyed(llm: Llm) -> None:
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    told = llm(
        "-m",
        "chat",
        "-o",
        "max_tokens",
        "400",
        "--schema",
        json.dumps(schema | {"additionalProperties": False}),
        "hello",
    )
    assert type(json.loads(told.stdout)["age"]) is int


def test_errors_are_told(llm: Llm) -> None:
    told = llm("-m", "chat", "x" * 9000)
    assert "This model's maximum context length is" in told.stderr
