"""The rate limit service behind a real Envoy, with the configuration of deploy/envoy, whose picker is away."""

import json
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from cli.envoy_configuration import envoy_configuration
from tests.redis_server import RedisServer
from tests.services import Process, StartService, eventually
from tests.unit.throttler.envoy_proxy import EnvoyProxy
from tests.unit.throttler.rate_limit_client import client_of
from tests.unit.throttler.test_rate_limit_service import shares_limits

INTERACTION = "x-fairlead-interaction"
TOKEN = "x-fairlead-interaction-token"
Front = Callable[..., "Caller"]


class Engine(BaseHTTPRequestHandler):
    """Answers each request with the request's own headers."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = json.dumps([[name.lower(), value] for name, value in self.headers.items()]).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        """Answer as an engine does that was asked for the usage in the body."""
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        if asked["stream"]:
            events = [{"choices": [{"text": "a"}]}, {"choices": [], "usage": asked["usage"]}]
            body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
            self.send_header("content-type", "text/event-stream")
        else:
            body = json.dumps({"choices": [{"text": "a"}], "usage": asked["usage"]})
            self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Write nothing."""


class Caller:
    """Calls through Envoy; `status` and `headers` are those of the last answer."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.body = b""

    def get(self, user: str, **headers: str) -> HTTPResponse:
        """Return the answer to a call, whose body is then in `body`."""
        return self._request("GET", "/v1/models", {"x-fairlead-user": user, **headers})

    def complete(self, user: str, prompt_tokens: int, output_tokens: int, *, stream: bool) -> HTTPResponse:
        """Return the answer to a completion that needs these tokens."""
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": output_tokens}
        body = json.dumps({"stream": stream, "usage": usage})
        return self._request(
            "POST", "/v1/completions", {"x-fairlead-user": user, "content-type": "application/json"}, body
        )

    def _request(self, method: str, path: str, headers: dict[str, str], body: str | None = None) -> HTTPResponse:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=60)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        answer = connection.getresponse()
        self.body = answer.read()
        connection.close()
        return answer


@pytest.fixture
def engine() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def front(engine: int, tmp_path: Path) -> Iterator[Front]:
    """`front(limiter)` starts Envoy before the engine and `limiter`."""
    started: list[EnvoyProxy] = []

    def start(limiter: Process) -> Caller:
        away, served = "127.0.0.1:1", f"127.0.0.1:{engine}"
        config = envoy_configuration(listen="127.0.0.1:0", engines=[served], picker=away, limiter=limiter.address)
        started.append(EnvoyProxy(config, tmp_path))
        return Caller(started[-1].port_of("http"))

    yield start
    for proxy in started:
        proxy.close()


def test_calls_are_refused_with_the_reason_and_interactions_go_on(start_service: StartService, front: Front) -> None:
    caller = front(start_service("throttler", throttle="oit:2"))
    opened = caller.get("ann", x_fairlead_interaction="journey")
    assert opened.status == 200
    carried = opened.headers[INTERACTION]
    assert [TOKEN, carried.partition("token=")[2]] in json.loads(caller.body), "the engine is given the token"
    assert opened.headers["x-ratelimit-limit"].startswith("2")
    assert opened.headers["x-ratelimit-remaining"] == "1"
    assert [caller.get("ann").status for _ in range(2)] == [200, 429]
    assert caller.body.startswith(b"overloaded, and user 'default/ann' is over user_per_minute=2; retry in")
    refused = caller.get("ann")
    assert refused.headers["x-fairlead-reason"] == caller.body.decode()
    assert 0 < int(refused.headers["retry-after"]) <= 60
    assert caller.get("ann", x_fairlead_interaction=carried).status == 200, "the interaction goes on"
    assert [caller.get("bob").status for _ in range(3)] == [200, 200, 429], "bob has a limit of his own"
    tried = ["journey;token=" + "A" * 59, carried, "journey;token=?", *(f"new {number}" for number in range(8))]
    assert {caller.get("bob", x_fairlead_interaction=each).status for each in tried} == {429}


def test_without_redis_an_instance_goes_on_alone_and_without_the_service_calls_are_refused(
    start_service: StartService, front: Front, tmp_path: Path
) -> None:
    redis = RedisServer(tmp_path)
    limiter = start_service("throttler", throttle="oit:4", redis=redis.url)
    eventually(lambda: shares_limits(limiter), "limits are shared")
    caller = front(limiter)
    assert caller.get("ann").status == 200
    redis.kill()
    eventually(lambda: not shares_limits(limiter), "it counts by itself")
    assert [caller.get("bob").status for _ in range(5)] == [200] * 4 + [429]
    limiter.kill()
    assert caller.get("carol").status == 500, "failure_mode_deny"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_tokens_are_reserved_and_booked_at_the_end_of_the_stream(
    start_service: StartService, front: Front, tmp_path: Path, stream: bool
) -> None:
    (tmp_path / "profiles.yaml").write_text(
        "limits: {user_tokens_per_minute: 1000, user_cost_per_minute: 1500}\n"
        "apps: {default: {expected: {input: 300, output: 100}}}\n"
    )
    limiter = start_service("throttler", throttle="oit:1000", profiles=tmp_path / "profiles.yaml")
    caller = front(limiter)
    with client_of(limiter) as client:

        def remaining(user: str) -> int:
            """What an end of a stream that tells nothing is told."""
            return client.ask({"user": user, "book": "input"}).statuses[0].limit_remaining

        first = caller.complete("ann", 100, 20, stream=stream)
        assert (first.status, first.headers["x-ratelimit-remaining-tokens"]) == (200, "600"), "400 are reserved"
        eventually(lambda: remaining("ann") == 880, "what was not needed is given back")
        assert caller.complete("ann", 500, 100, stream=stream).status == 200
        eventually(lambda: remaining("ann") == 280, "what was needed beyond the reservation is booked")
        assert caller.complete("ann", 1, 1, stream=stream).status == 429
        assert b"user_tokens_per_minute=1000: the call is expected to need 400 tokens, and 280 are left" in caller.body

        assert caller.complete("bob", 1, 510, stream=stream).status == 200
        eventually(lambda: remaining("bob") == 489, "the whole use is known")
        assert caller.complete("bob", 1, 1, stream=stream).status == 429
        assert (
            b"user_cost_per_minute=1500: the call is expected to need 500 cost units, and 479 are left" in caller.body
        )
