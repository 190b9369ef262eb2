"""Callers that go, and callers that stay and read nothing."""

import socket
import time

import pytest

from tests.services import Stack, eventually
from tests.unit.gateway.http.conftest import serving
from tests.unit.gateway.http.http_client import CHAT, HELLO, TEXT

LONG = {"messages": HELLO, "ignore_eos": True, "max_tokens": 4000}


def test_a_caller_that_hangs_up_cancels_its_calls(stack: Stack) -> None:
    stack.worker("a", engine="fake:0.02")
    gateway, http = serving(stack)
    for body in (LONG, {**LONG, "stream": True}):
        with http.begin(CHAT, body):
            eventually(lambda: stack.requests() == 1, "it runs")
        eventually(lambda: stack.requests() == 0, "its worker is free again")
    with http.begin(
        TEXT, {"prompt": ["a", "b", "c"], "ignore_eos": True, "max_tokens": 4000, "stream": True}
    ) as several:
        eventually(lambda: stack.requests() == 3, "all of them run")
        assert several.recv(12) == b"HTTP/1.1 200"
    eventually(lambda: stack.requests() == 0, "its worker is free again")
    assert [line["outcome"] for line in gateway.logged("call ended")] == ["CANCELLED"] * 5


@pytest.mark.parametrize("stream", [False, True])
def test_a_caller_that_sends_its_end_is_answered(stack: Stack, stream: bool) -> None:
    """As scripts do with `nc -N`. Until its answer begins it is written what is no part of one."""
    stack.worker("a", engine="fake:0.02")
    _, http = serving(stack)
    short = b"GET /version HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with http.begin(CHAT, {**LONG, "max_tokens": 30, "stream": stream}) as connection:
        connection.sendall(short)
        connection.shutdown(socket.SHUT_WR)
        received = connection.makefile("rb").read()
    assert received.count(b"HTTP/1.1 200 OK\r\n") == 2
    assert received.count(b"data: [DONE]") == stream
    assert (b"HTTP/1.1 100 Continue\r\n\r\n" in received) == (not stream)
    assert b"connection: close" in received.rpartition(b"HTTP/1.1 200")[2], "the last answer is the last"
    with http.connect() as connection:
        connection.sendall(short)
        connection.shutdown(socket.SHUT_WR)
        assert connection.makefile("rb").read().startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("stream", [False, True])
def test_a_caller_that_is_gone_gives_up_its_place_in_the_queue(stack: Stack, stream: bool) -> None:
    """Within a second: it has sent its end as one that waits would, and resets what is written to it."""
    stack.worker("a", engine="fake:0.02", max_running=1)
    gateway, http = serving(stack)
    with http.begin(CHAT, LONG):
        eventually(lambda: stack.requests() == 1, "the worker has no place left")
        http.begin(CHAT, {**LONG, "stream": stream}).close()
        began = time.monotonic()
        eventually(lambda: gateway.logged("call ended"), "its call is over")
        assert time.monotonic() - began < 3.0, "on a busy machine, too"
    assert gateway.logged("call ended")[0]["outcome"] == "CANCELLED"


def test_a_caller_that_reads_nothing_is_given_up(stack: Stack) -> None:
    stack.worker("a", kv_tokens=100_000, max_running=64)
    gateway, http = serving(stack, reader_seconds=0.5, throttle="none")
    body = {"prompt": ["x"] * 16, "max_tokens": 3000, "ignore_eos": True, "stream": True}
    with http.begin(TEXT, body, x_fairlead_streaming="each_token") as stalled:
        eventually(lambda: gateway.logged("call ended"), "its calls are over")
        eventually(lambda: len(gateway.logged("call ended")) == 16, "every one of them")
        assert http.chat(max_tokens=1).status == 200, "others are served"
        assert stalled.recv(12) == b"HTTP/1.1 200"
    outcomes = [line["outcome"] for line in gateway.logged("call ended")]
    assert "CANCELLED" in outcomes
    eventually(lambda: stack.requests() == 0, "the worker is free again")


def test_a_drain_lets_streams_end(stack: Stack) -> None:
    stack.worker("a", engine="fake:0.02")
    gateway, http = serving(stack)
    body = {"messages": HELLO, "ignore_eos": True, "max_tokens": 40, "stream": True}
    with http.begin(CHAT, body) as stream, http.connect() as idle:
        assert stream.recv(12) == b"HTTP/1.1 200"
        gateway.begin_terminate()
        assert idle.recv(1) == b"", "idle connections are closed"
        parts = []
        while part := stream.recv(65536):
            parts.append(part)
    assert b"".join(parts).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    assert gateway.wait() == 0


def test_a_stream_that_waits_is_kept_alive(stack: Stack) -> None:
    """Takes 20 s, in which nothing happens: the time after which nobody between would take a connection for dead."""
    stack.worker("a", engine="fake:0.05", max_running=1)
    _, http = serving(stack)
    with http.begin(CHAT, LONG):
        eventually(lambda: stack.requests() == 1, "the worker has no place left")
        with http.begin(CHAT, {"messages": HELLO, "stream": True}) as waiting:
            received = b""
            while b"\n\n" not in received:
                part = waiting.recv(65536)
                assert part, received
                received += part
    assert received.startswith(b"HTTP/1.1 200")
    assert received.endswith(b": ping\n\n\r\n")
