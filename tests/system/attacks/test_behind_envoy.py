"""What a real Envoy lets through to the rate limit service and the picker evades no limit, and harms nobody else."""

import asyncio
import json
import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from http.client import HTTPConnection
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from cli.envoy_configuration import envoy_configuration
from tests.fakes.served_engine.process import EngineProcess
from tests.services import DEADLINE, Process, eventually
from tests.system.attacks.http2 import END_HEADERS, HEADERS, PING, PREFACE, SETTINGS, frame, request_headers
from tests.system.attacks.report import Memory, Report
from tests.system.attacks.sizes import Sizes
from tests.system.attacks.test_frames import LAST, reset, send, streams
from tests.unit.endpoint_picker.example import http_manager
from tests.unit.throttler.envoy_proxy import EnvoyProxy

pytestmark = pytest.mark.e2e
PATH = "/v1/completions"
PROMPT = json.dumps({"prompt": [1, 2, 3], "max_tokens": 2, "ignore_eos": True, "stream": True}).encode()
MIB = 1 << 20
MOST_GROWTH = 128  # MiB
MOST_HELD = 512  # MiB: uploads that Envoy has sent in part, of the 2 GiB in deploy/k8s/fleet/picker.yaml
LIMITED = "a user whose limit is used up"


class Behind:
    """An Envoy with the configuration of deploy/envoy, in which a user has one call a minute."""

    def __init__(self, directory: Path) -> None:
        self._engine = EngineProcess(directory / "engine.log", events=False, max_num_seqs=64)
        self._engine.metric("served_engine_most_requests")
        started = {"listen": "127.0.0.1:0", "secret": "a secret for tests only"}
        endpoints = {"endpoints": self._engine.address}
        self.picker = Process("endpoint_picker", directory / "picker.log", {**started, **endpoints})
        self.limiter = Process("throttler", directory / "limiter.log", {**started, "throttle": "oit:1"})
        config = envoy_configuration(
            listen="127.0.0.1:0",
            engines=[self._engine.address],
            picker=self.picker.address,
            limiter=self.limiter.address,
        )
        http_manager(config)["delayed_close_timeout"] = "0.1s"  # after it has refused something
        self.envoy = EnvoyProxy(config, directory)
        self.port = self.envoy.port_of("http")
        self._honest = 0
        eventually(lambda: self.envoy.statistic("cluster.picker.membership_healthy"), "Envoy knows the picker")

    def memory(self) -> Memory:
        return Memory(picker=self.picker, limiter=self.limiter)

    def status(self, body: bytes = PROMPT, *, path: str = PATH, **headers: Any) -> int:
        """The status of the answer to a call."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        named = {
            "content-type": b"application/json",
            **{name.replace("_", "-"): each for name, each in headers.items()},
        }
        connection.request("POST", path, body, named)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status

    def assert_unharmed(self) -> None:
        """A new user is served, and no log has a traceback or an error."""
        self._honest += 1
        assert self.status(x_fairlead_user=b"honest user %d" % self._honest) == 200
        for process in (self.picker, self.limiter):
            assert not [line for line in process.lines() if line["level"] == "error"]
            assert "Traceback" not in process.log

    def close(self) -> None:
        self.envoy.close()
        for process in (self.picker, self.limiter):
            process.kill()
        self._engine.kill()


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    behind = Behind(tmp_path_factory.mktemp("envoy"))
    assert behind.status(x_fairlead_user=LIMITED.encode()) == 200
    assert behind.status(x_fairlead_user=LIMITED.encode()) == 429
    yield behind
    behind.close()


# Headers that a caller may choose, beside the user whom whatever authenticates it has named.
CHOSEN: dict[str, dict[str, Any]] = {
    "an app that is not UTF-8": {"x_fairlead_app": b"\xff\xfe"},
    "an interaction that is not UTF-8": {"x_fairlead_interaction": b"\xff"},
    "an interaction whose token is not": {"x_fairlead_interaction": b"a;token=\xc3"},
    "an id that is not UTF-8": {"x_request_id": b"\xff"},
    "an id of 50 kB": {"x_request_id": b"i" * 50_000},
    "an app of 50 kB": {"x_fairlead_app": b"a" * 50_000},
    "an interaction of 50 kB": {"x_fairlead_interaction": b"a;token=" + b"A" * 50_000},
    "an app of control characters": {"x_fairlead_app": "a\u202e\u2066".encode()},
    "an empty interaction": {"x_fairlead_interaction": b";end"},
    "another's pick": {"x_fairlead_pick": b"0-1"},
    "a pick that is not UTF-8": {"x_fairlead_pick": b"\xff"},
    "an endpoint": {"x_gateway_destination_endpoint": b"127.0.0.1:1"},
    "a fairness id that is not UTF-8": {"x_llm_d_inference_fairness_id": b"\xff"},
}


@pytest.mark.parametrize("name", CHOSEN)
def test_no_header_evades_the_limit(behind: Behind, report: Report, name: str) -> None:
    assert behind.status(x_fairlead_user=LIMITED.encode(), **CHOSEN[name]) == 429
    report.add("behind Envoy: headers that could evade a limit", Counter({"429": 1}))
    behind.assert_unharmed()


@pytest.mark.parametrize(
    "path", ["/metrics", "/reset_prefix_cache", "/v1/../metrics", "/v1/%2e%2e/metrics", "//metrics"]
)
def test_paths_of_engines_outside_the_api_are_not_reached(behind: Behind, path: str) -> None:
    assert behind.status(path=path, x_fairlead_user=b"a curious user") == 404


BODIES = {
    "bytes": b"\xff" * 1000,
    "depth": b"[" * MIB,
    "objects": b'{"prompt":[' + b"{}," * MIB + b"{}]}",
    "numbers near zero": b'{"prompt":[' + b"5e-324," * 500_000 + b"1]}",
    "a text of 8 MB": b'{"prompt":"' + b"x" * 8_000_000 + b'"}',
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_is_passed_on_in_bounded_memory_and_time(behind: Behind, report: Report, name: str) -> None:
    """The engine of these tests answers 500 to what it does not understand."""
    memory, before = behind.memory(), behind.picker.cpu_seconds
    status = behind.status(BODIES[name], x_fairlead_user=f"sender of {name}".encode())
    report.add("behind Envoy: bodies", Counter({str(status): 1}), memory)
    assert memory.grown < MOST_GROWTH, str(memory)
    behind.assert_unharmed()
    assert behind.picker.cpu_seconds - before < 2


def uploads(port: int, count: int, part: bytes) -> Iterable[socket.socket]:
    """Bodies that do not end."""
    head = b"POST %s HTTP/1.1\r\nhost: a\r\nx-fairlead-user: u%%d\r\ncontent-length: 100000000\r\n\r\n" % PATH.encode()
    for number in range(count):
        connection = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE)
        connection.sendall(head % number + part)
        yield connection


def test_uploads_that_never_end(behind: Behind, sizes: Sizes, report: Report) -> None:
    memory = behind.memory()
    opened = list(uploads(behind.port, sizes.frames // 100, bytes(MIB)))
    behind.assert_unharmed()
    for connection in opened:
        connection.close()
    report.add("behind Envoy: uploads that do not end", Counter({"held in part": len(opened)}), memory)
    assert memory.grown < MOST_HELD, str(memory)


def test_streams_that_are_reset_as_soon_as_they_begin(behind: Behind, sizes: Sizes, report: Report) -> None:
    """CVE-2023-44487, at Envoy."""
    block = request_headers(PATH, (b"x-fairlead-user", b"resetter"))
    resets = (frame(HEADERS, END_HEADERS, stream, block) + reset(stream) for stream in streams(sizes.frames))
    memory = behind.memory()
    data = b"".join(chain([PREFACE, frame(SETTINGS, 0, 0, b"")], resets, [frame(PING, 0, 0, LAST)]))
    end = asyncio.run(send(f"127.0.0.1:{behind.port}", data))
    behind.assert_unharmed()
    report.add(f"behind Envoy: {sizes.frames:,} streams that are reset", Counter({end: 1}), memory)
    assert memory.grown < MOST_GROWTH, str(memory)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST %s HTTP/1.1\r\nhost: a\r\ncontent-length: 6\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /x",
        b"POST %s HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\ncontent-length: 6\r\n\r\n{}{}{}",
        b"POST %s HTTP/1.1\r\nhost: a\r\ntransfer-encoding: xchunked\r\n\r\n{}",
        b"GET %s HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 100_000 + b"\r\n\r\n",
        b"GET %s HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-key: x\r\n\r\n",
        b"GET %s HTTP/1.0\r\n\r\n",
    ],
    ids=["two lengths", "two content-lengths", "a coding", "a header", "an upgrade", "HTTP/1.0"],
)
def test_envoy_refuses_malformed_requests_itself(behind: Behind, request_bytes: bytes) -> None:
    with socket.create_connection(("127.0.0.1", behind.port), timeout=DEADLINE) as connection:
        connection.sendall(request_bytes % PATH.encode())
        received = b""
        while part := connection.recv(65536):
            received += part
    assert received.startswith((b"HTTP/1.1 4", b"HTTP/1.1 501")), received[:100]
    assert received.count(b"HTTP/1.1 ") == 1, "nothing behind it is taken for a request"
    behind.assert_unharmed()
