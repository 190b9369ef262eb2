"""Interactions by a header: the answer's is sent back with the next call."""

import hashlib

import pytest

from fairlead.errors import InvalidRequest
from serving.interaction_header import header_of, parse
from tests.services import Process, Stack, eventually
from tests.unit.gateway.http.conftest import serving
from tests.unit.gateway.http.http_client import CHAT, HELLO, TEXT, HttpClient

BODY = {"messages": HELLO, "max_tokens": 1}


def test_calls_of_an_interaction_are_counted_together(shared: tuple[Process, HttpClient]) -> None:
    gateway, http = shared
    opened = http.post(CHAT, BODY, x_fairlead_interaction="journey 1")
    header = opened.headers["x-fairlead-interaction"]
    assert header.startswith("journey 1;token=")
    streamed = http.post(CHAT, {**BODY, "stream": True}, x_fairlead_interaction=header)
    assert streamed.headers["x-fairlead-interaction"] != header
    last = http.post(CHAT, BODY, x_fairlead_interaction=streamed.headers["x-fairlead-interaction"] + ";end")
    assert last.status == 200
    closed = eventually(lambda: gateway.logged("interaction closed"), "it is over")
    assert [(line["interaction"], line["calls"]) for line in closed] == [("journey 1", 3)]


def test_under_overload_an_interaction_in_progress_goes_on(stack: Stack) -> None:
    stack.worker("a", engine="fake:0.02", max_running=1)
    gateway, http = serving(stack, throttle="oit:1")
    opened = http.post(CHAT, BODY, x_fairlead_interaction="journey")
    with http.begin(TEXT, {"prompt": ["x"] * 8, "max_tokens": 2000, "ignore_eos": True}):
        eventually(lambda: any(line["models"] for line in gateway.logged("overload changed")), "overload")
        assert http.post(CHAT, BODY).status == 429
        header = opened.headers["x-fairlead-interaction"]
        forged = "another" + header[len("journey") :]
        assert http.post(CHAT, BODY, x_fairlead_interaction=forged).status == 429
        waiting = http.begin(CHAT, BODY, x_fairlead_interaction=header)
        eventually(lambda: stack.requests() == 9, "the protected call is let in")
    with waiting:
        assert waiting.recv(12) == b"HTTP/1.1 200"


@pytest.mark.parametrize("header", ["", ";end", "x;token=!!", "x;tok=1", "x" * 129, "x;end=1"])
def test_headers_that_are_none(http: HttpClient, header: str) -> None:
    answer = http.post(CHAT, BODY, x_fairlead_interaction=header)
    assert answer.status == 400, answer.body
    assert answer.error["param"] == "x-fairlead-interaction"


def test_a_header_comes_back_as_it_was() -> None:
    for size in range(5):
        token = hashlib.sha256(b"x").digest()[:size]
        name, value = header_of("an id", token)
        again = parse(value.decode())
        assert name == b"x-fairlead-interaction"
        assert (again.id, again.token, again.end) == ("an id", token, False)
    assert parse("x; token=YQ ;end").end
    with pytest.raises(InvalidRequest, match="printable ASCII"):
        parse("caf\u00e9")
