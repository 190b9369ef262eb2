"""`fairlead up --beside`: engines of the operator's own, found by their addresses, and what they say of themselves."""

import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from urllib.parse import parse_qsl, urlsplit

from serving.config import ConfigError

# Where `vllm serve` publishes events of its KV cache unless it is told otherwise, and where its documentation has it
# repeat them.
EVENTS_PORT, REPLAY_PORT = 5557, 5558
# A ZeroMQ socket begins each connection with these bytes, with eight others between them (ZMTP 3.1, section 3).
GREETING = (b"\xff", b"\x7f")
GREETING_BYTES = 10
ANSWER_SECONDS = 0.5
# The adapter's options that have to agree with the engine's, which `vllm serve` tells nobody; and their defaults.
ASSUMED = {"--max-running": ("--max-num-seqs", 128), "--token-budget": ("--max-num-batched-tokens", 2048)}

LONG_PROMPTS = (
    "assumed of each engine: prefix caching, or --long-prefill-token-threshold, a quarter of --max-num-batched-tokens "
    "or less; without both a long prompt delays all users"
)


@dataclass(frozen=True, slots=True)
class RunningEngine:
    """A `vllm serve` at `address`, host:port; the ZeroMQ addresses of its events are empty where none are known."""

    address: str
    kv_events: str = ""
    kv_replay: str = ""

    @property
    def arguments(self) -> list[str]:
        """The arguments of the adapter beside this engine."""
        events = ",".join(filter(None, (self.kv_events, self.kv_replay)))
        options = {"--engine": self.address, "--kv-events": events}
        return [part for option, value in options.items() if value for part in (option, value)]

    def __str__(self) -> str:
        """Return what the operator is told of the engine."""
        if self.kv_events:
            return f"beside http://{self.address}, with KV events from {self.kv_events}"
        lost = "no prefix counts as cached, neither for the order of requests nor for their cost"
        return f"beside http://{self.address}, without KV events: {lost}"


def told(engines: Sequence[RunningEngine], adapter_arguments: Sequence[str]) -> list[str]:
    """Return what the operator should know: what was found out of each engine, and what no engine tells."""
    assumed = [
        f"assumed of each engine: {engine_option} {value}; if it has another: --worker-arg={option}=N"
        for option, (engine_option, value) in ASSUMED.items()
        if not any(argument.startswith(option) for argument in adapter_arguments)
    ]
    missing = [] if find_spec("zmq") else ["KV events need pyzmq: pip install 'fairlead-serving[adapter]'"]
    return [*map(str, engines), *missing, *assumed, LONG_PROMPTS] if engines else []


def parse_engines(text: str) -> list[RunningEngine]:
    """Return the engines at URLs that are separated by commas, `http://host:port?kv-events=...&kv-replay=...`.

    Raises ConfigError with the URL that cannot be one.
    """
    engines = [_parse(url.strip()) for url in text.split(",")]
    if twice := [address for address, count in Counter(engine.address for engine in engines).items() if count > 1]:
        raise ConfigError(f"--beside: {twice[0]} is named twice")
    return engines


def _parse(url: str) -> RunningEngine:
    expected = f"--beside: expected http://host:port, got {url!r}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{expected}: {error}") from error
    if parts.scheme != "http" or not parts.hostname or port is None or parts.path.rstrip("/") not in ("", "/v1"):
        raise ConfigError(expected)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    events, replay = options.pop("kv-events", ""), options.pop("kv-replay", "")
    if options:
        raise ConfigError(f"--beside: expected kv-events and kv-replay alone after the ?, got {url!r}")
    return RunningEngine(parts.netloc.rpartition("@")[2], events, replay)


def with_events(engines: Sequence[RunningEngine]) -> list[RunningEngine]:
    """Return the engines with the events that their hosts publish at vLLM's ports, where nothing else was said.

    Of several engines on one host it is not known whose events they are.
    """
    hosts = Counter(_host(engine) for engine in engines)
    if find_spec("zmq") is None:
        return list(engines)
    return [_found(engine) if not engine.kv_events and hosts[_host(engine)] == 1 else engine for engine in engines]


def _found(engine: RunningEngine) -> RunningEngine:
    host = _host(engine)
    events, replay = (
        f"tcp://{host}:{port}" if _is_zeromq(host.strip("[]"), port) else "" for port in (EVENTS_PORT, REPLAY_PORT)
    )
    return replace(engine, kv_events=events, kv_replay=events and replay)


def _host(engine: RunningEngine) -> str:
    return engine.address.rpartition(":")[0]


def _is_zeromq(host: str, port: int) -> bool:
    """Return whether a ZeroMQ socket listens there."""
    greeting = b""
    try:
        with socket.create_connection((host, port), ANSWER_SECONDS) as connection:
            while len(greeting) < GREETING_BYTES and (part := connection.recv(GREETING_BYTES - len(greeting))):
                greeting += part
    except OSError:
        return False
    return (greeting[:1], greeting[GREETING_BYTES - 1 :]) == GREETING
