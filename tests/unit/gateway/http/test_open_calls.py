"""What calls in progress keep of their requests, as the memory of a gateway shows it."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.services import Process, Stack
from tests.unit.gateway.http.conftest import serving
from tests.unit.gateway.http.http_client import CHAT, HELLO, MESSAGES, RESPONSES, TEXT, HttpClient

CALLS = 12
STRINGS = {str(number): "x" * 20 for number in range(40_000)}  # a body of 1.5 MB, and some 8 MiB of objects
SEARCHES = [{"type": "web_search_call", "id": "x" * 100, "action": {"query": "x" * 100}}] * 9000
LONG = "x" * 3 * 2**20
MOST_GROWTH = 24  # MiB; what is read at one time is freed, but not all of it is given back


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, HttpClient]]:
    stack = Stack(tmp_path_factory.mktemp("stack"))
    stack.worker("a", model="tiny", engine="fake:0.02,4096", kv_tokens=2**20, max_running=64, max_prompt_tokens=2**16)
    gateway, http = serving(stack, throttle="none")
    yield gateway, http
    stack.close()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": HELLO, "max_tokens": 10_000, "metadata": STRINGS}),
        (CHAT, {"messages": [{"role": "user", "content": LONG}], "max_tokens": 10_000, "n": 2}),
        (TEXT, {"prompt": "hello", "max_tokens": 10_000, "metadata": STRINGS}),
        (MESSAGES, {"messages": HELLO, "max_tokens": 10_000, "metadata": STRINGS}),
        (RESPONSES, {"input": [*HELLO, *SEARCHES], "max_output_tokens": 10_000}),
        (RESPONSES, {"input": [*HELLO, *SEARCHES], "max_output_tokens": 10_000, "store": False}),
    ],
)
def test_calls_in_progress_keep_little_of_their_requests(
    served: tuple[Process, HttpClient], path: str, body: dict[str, object]
) -> None:
    gateway, http = served
    body = {**body, "model": "tiny", "stream": True, "ignore_eos": True}
    with http.begin(path, body) as first:
        assert first.recv(16).startswith(b"HTTP/1.1 200")
        before = gateway.resident
        with ExitStack() as opened:
            for _ in range(CALLS):
                call = opened.enter_context(http.begin(path, body))
                assert call.recv(16).startswith(b"HTTP/1.1 200"), "it has a first token"
            assert gateway.resident < before + MOST_GROWTH
