"""`fairlead up --beside`: Fairlead in front of engines that run already, with one command."""

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import pytest

from cli.beside import ASSUMED, EVENTS_PORT, RunningEngine, parse_engines, told, with_events
from engine_adapter.config import AdapterConfig
from serving.config import ConfigError
from tests.fakes.served_engine.process import EngineProcess
from tests.ports import free_ports
from tests.unit.cli.commands import Command, called


@pytest.mark.e2e
def test_engines_that_run_already_are_served_by_one_command(tmp_path: Path) -> None:
    hearing = EngineProcess(tmp_path / "hearing.log")
    silent = EngineProcess(tmp_path / "silent.log", events=False)
    command = Command(tmp_path)
    events = f"kv-events={hearing.events}&kv-replay={hearing.replay}"
    urls = f"http://{hearing.address}/v1?{events},http://{silent.address}"
    try:
        for engine in (hearing, silent):
            engine.metric("served_engine_most_requests")
        up = command.up_with("--beside", urls, "--worker-arg=--max-running=8")
        try:
            up.wait_for("ready: gateway")
            assert hearing.events in up.wait_for(f"beside http://{hearing.address}, with KV events from ")
            assert "no prefix counts as cached" in up.wait_for(f"beside http://{silent.address}, without KV events")
            assert "--worker-arg=--token-budget=N" in up.wait_for(
                "assumed of each engine: --max-num-batched-tokens 2048"
            )
            answered = command.run("generate", "hello", "--max-tokens", "8")
            assert (answered.returncode, bool(answered.stdout.strip())) == (0, True), answered.stderr
            assert command.call("status", "--wide").stdout.count("adapted") == 2
            assert up.end(signal.SIGTERM) == 0
            assert "--max-num-seqs" not in up.rest()
        finally:
            up.close()
    finally:
        for engine in (hearing, silent):
            engine.kill()


@pytest.mark.e2e
def test_an_engine_that_does_not_answer_is_named_with_the_reason(tmp_path: Path) -> None:
    [port] = free_ports(1)
    up = Command(tmp_path).up_with("--beside", f"http://127.0.0.1:{port}")
    try:
        assert "refused" in up.wait_for(f"worker-0: waiting for the engine 127.0.0.1:{port}: ")
        assert up.end(signal.SIGTERM) == 0
    finally:
        up.close()


@pytest.mark.parametrize(
    ("text", "engines"),
    [
        ("http://127.0.0.1:8001", [RunningEngine("127.0.0.1:8001")]),
        ("http://a:1/v1/, http://[::1]:2/", [RunningEngine("a:1"), RunningEngine("[::1]:2")]),
        ("http://a:1?kv-events=tcp://a:3", [RunningEngine("a:1", "tcp://a:3")]),
        ("http://a:1?kv-replay=tcp://a:4&kv-events=tcp://a:3", [RunningEngine("a:1", "tcp://a:3", "tcp://a:4")]),
    ],
)
def test_engines_are_named_by_their_urls(text: str, engines: list[RunningEngine]) -> None:
    assert parse_engines(text) == engines


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("127.0.0.1:8001", "expected http://host:port, got '127.0.0.1:8001'"),
        ("https://a:1", "expected http://host:port"),
        ("http://a", "expected http://host:port"),
        ("http://a:x", "expected http://host:port, got 'http://a:x': Port could not be cast"),
        ("http://a:1/v2", "expected http://host:port"),
        ("http://a:1,", "expected http://host:port, got ''"),
        ("http://a:1,http://a:1/v1", "a:1 is named twice"),
        ("http://a:1?events=x", "expected kv-events and kv-replay alone"),
    ],
)
def test_a_url_that_is_no_engine_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match="--beside: ") as refused:
        parse_engines(text)
    assert reason in str(refused.value)


@pytest.mark.parametrize("options", [("--model", "m"), ("--engine", "fake"), ("--workers", "7"), ("--envoy",)])
def test_options_of_own_workers_are_refused(options: tuple[str, ...]) -> None:
    done = called("up", "--beside", "http://127.0.0.1:1", *options)
    assert done.returncode == 2
    assert "only without --" in done.stderr


@contextmanager
def listening(port: int, says: bytes) -> Iterator[None]:
    """Somebody who says this to everybody."""
    with socket.create_server(("127.0.0.1", port)) as server:

        def greet() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(says)

        thread = threading.Thread(target=greet)
        thread.start()
        yield
        thread.join()


@pytest.mark.parametrize(
    ("says", "is_heard"),
    [(b"\xff" + bytes(8) + b"\x7f\x03", True), (b"HTTP/1.1 400\r\n", False), (b"\xff", False), (b"", False)],
)
def test_events_are_found_where_a_zeromq_socket_listens(
    says: bytes, is_heard: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port: int = unused.getsockname()[1]
    monkeypatch.setattr("cli.beside.EVENTS_PORT", port)
    monkeypatch.setattr("cli.beside.REPLAY_PORT", 1)
    with listening(port, says):
        [engine] = with_events([RunningEngine("127.0.0.1:9")])
    assert engine == RunningEngine("127.0.0.1:9", f"tcp://127.0.0.1:{port}" if is_heard else "")


def test_events_of_several_engines_on_one_host_are_not_guessed() -> None:
    engines = [RunningEngine("127.0.0.1:9"), RunningEngine("127.0.0.1:10")]
    assert with_events(engines) == engines


def test_the_assumed_values_are_the_adapters_defaults() -> None:
    defaults = {f"--{each.name.replace('_', '-')}": each.default for each in fields(AdapterConfig)}
    assert {option: value for option, (_, value) in ASSUMED.items()} == {option: defaults[option] for option in ASSUMED}
    assert len(told([RunningEngine("a:1")], [])) == 2 + len(ASSUMED)
    assert told([], []) == []
    assert EVENTS_PORT == 5557
