"""What callers are told by a gateway that stops: every one gets an answer, and none is blamed."""

import json
import socket

import grpc
import pytest

from fairlead.v1 import common_pb2, inference_pb2, inference_pb2_grpc
from tests.services import Stack, eventually
from tests.unit.gateway.http.conftest import serving
from tests.unit.gateway.http.http_client import CHAT, HELLO, MESSAGES, RESPONSES, TEXT, TOKENIZE

LONG = {"messages": HELLO, "ignore_eos": True, "max_tokens": 4000}
ASKS = {
    CHAT: LONG,
    TEXT: {"prompt": ["x", "y"], "ignore_eos": True, "max_tokens": 4000},
    RESPONSES: {"input": "x", "ignore_eos": True, "max_output_tokens": 4000},
    MESSAGES: LONG,
}
HEALTH = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"


def rest(connection: socket.socket) -> bytes:
    """All that comes until the gateway closes the connection, which it must not break."""
    with connection, connection.makefile("rb") as answer:
        return answer.read()


def head(connection: socket.socket) -> bytes:
    """The head of an answer, and what came with it."""
    received = b""
    while b"\r\n\r\n" not in received:
        part = connection.recv(65536)
        assert part, received
        received += part
    return received


def test_calls_that_do_not_end_in_time_are_refused(stack: Stack) -> None:
    """Streams, whole answers and gRPC calls: the error says that the gateway stops, and no outcome blames a caller."""
    stack.worker("a", engine="fake:0.05", kv_tokens=100_000, max_running=64)
    gateway, http = serving(stack, drain_seconds=0.5, throttle="none")
    streams = {path: http.begin(path, {**ask, "stream": True}) for path, ask in ASKS.items()}
    begun = {path: head(stream) for path, stream in streams.items()}
    wholes = {path: http.begin(path, ask) for path, ask in ASKS.items()}
    with grpc.insecure_channel(gateway.address) as channel:
        prompt = common_pb2.Prompt(text="x")
        sampling = common_pb2.SamplingParams(max_tokens=4000, ignore_eos=True)
        call = inference_pb2_grpc.InferenceStub(channel).Generate(
            inference_pb2.GenerateRequest(prompt=prompt, sampling=sampling)
        )
        next(call)
        eventually(lambda: stack.requests() == 11, "all of them run")
        gateway.begin_terminate()
        for path, stream in streams.items():
            answer = begun[path] + rest(stream)
            assert answer.endswith(b"\r\n0\r\n\r\n"), "it is complete"
            assert b"the gateway stops" in answer
            assert b'"overloaded_error"' in answer if path == MESSAGES else b'"unavailable"' in answer
        for path, whole in wholes.items():
            answer = rest(whole)
            assert answer.startswith(b"HTTP/1.1 529 " if path == MESSAGES else b"HTTP/1.1 503 ")
            assert b"\r\nretry-after: 1\r\n" in answer
            assert b"\r\nconnection: close\r\n" in answer
            assert b"the gateway stops" in json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"].encode()
        with pytest.raises(grpc.RpcError) as ended:
            list(call)
    assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
    assert gateway.wait() == 0
    assert [line["outcome"] for line in gateway.logged("call ended")] == ["UNAVAILABLE"] * 11
    assert not [line for line in gateway.lines() if line["level"] in ("warning", "error")]


def test_requests_that_are_no_calls_are_refused(stack: Stack) -> None:
    """A head, a body, and a prompt to tokenize that have not come to their end."""
    stack.worker("a")
    gateway, http = serving(stack, drain_seconds=0.5)
    stack.workers["a"].pause()
    post = b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"
    asks = [b"GET /hea", *(post % path for path in (b"/v1/chat/completions", b"/tokenize"))]
    waiting = []
    for ask in asks:
        waiting.append(http.connect())
        waiting[-1].sendall(ask)
    waiting.append(http.begin(TOKENIZE, {"prompt": "x"}))
    assert http.get("/health").status == 200, "what was sent before has arrived"
    gateway.begin_terminate()
    for connection in waiting:
        answer = rest(connection)
        assert answer.startswith(b"HTTP/1.1 503 "), answer
        assert b"\r\nretry-after: 1\r\n" in answer
        assert b"\r\nconnection: close\r\n" in answer
    assert gateway.wait() == 0
    assert not [line for line in gateway.lines() if line.get("outcome") == "CANCELLED"]


def test_a_caller_that_reads_slowly_is_told(stack: Stack) -> None:
    stack.worker("a", kv_tokens=100_000, max_running=64)
    gateway, http = serving(stack, drain_seconds=0.5, throttle="none")
    body = {"prompt": ["x"] * 16, "max_tokens": 3000, "ignore_eos": True, "stream": True}
    with http.begin(TEXT, body, x_fairlead_streaming="each_token") as slow:
        eventually(lambda: stack.requests() == 0, "the worker has written more than the network takes")
        gateway.begin_terminate()
        gateway.wait_for("call ended")
        assert b"the gateway stops" in rest(slow)
    assert gateway.wait() == 0
    assert "CANCELLED" not in {line["outcome"] for line in gateway.logged("call ended")}


def test_only_an_answer_that_says_so_is_the_last(stack: Stack) -> None:
    """A stream had begun before the gateway knew that it stops, so the connection serves one more request."""
    stack.worker("a", engine="fake:0.02")
    gateway, http = serving(stack)
    connection = http.begin(CHAT, {**LONG, "max_tokens": 20, "stream": True})
    with connection, http.connect() as idle:
        answer = head(connection)
        assert b"connection: close" not in answer
        gateway.begin_terminate()
        gateway.wait_for("draining")
        while not answer.endswith(b"\r\n0\r\n\r\n"):
            answer += connection.recv(65536)
        for kept in (connection, idle):
            kept.sendall(HEALTH)
            answer = rest(kept)
            assert answer.startswith(b"HTTP/1.1 200 OK")
            assert b"\r\nconnection: close\r\n" in answer
    assert gateway.wait() == 0
