"""A real adapter beside an engine that lies: each call ends with a typed error, and the adapter goes on."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from fairlead.errors import FairleadError, InvalidRequest, Unavailable
from fairlead.rpc.status import from_call
from tests import services
from tests.fakes.served_engine.malicious import HONEST, MaliciousEngine, choice, events, whole
from tests.services import Process, Stack, eventually
from tests.system.faults.load import caller, request_for

LONG = b"HTTP/1.1 200 x\r\nContent-Length: 1000000000000\r\n\r\n"
MIB = 1024 * 1024


class Beside:
    """A gateway, a scheduler, and an adapter beside a malicious engine in a thread of this process."""

    def __init__(self, directory: Path) -> None:
        self.engine = MaliciousEngine()
        self._loop = asyncio.new_event_loop()
        self._serving = self.engine.serve()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._serving.__aenter__(), self._loop).result()
        self.stack = Stack(directory)
        self.stack.adapter("lied-to", engine=self.engine.address)
        self.gateway = self.stack.gateway(throttle="none")

    @property
    def adapter(self) -> Process:
        return self.stack.workers["lied-to"]

    def rss(self) -> int:
        """The adapter's memory in bytes."""
        [line] = [
            line
            for line in Path(f"/proc/{self.adapter.pid}/status").read_text().splitlines()
            if line.startswith("VmRSS:")
        ]
        return int(line.split()[1]) * 1024

    def outcome(self) -> FairleadError | None:
        with caller(self.gateway.address) as stub:
            try:
                list(stub.Generate(request_for("hi", 2), timeout=services.DEADLINE))
            except grpc.RpcError as error:
                return from_call(error)
        return None

    def close(self) -> None:
        self.stack.close()
        asyncio.run_coroutine_threadsafe(self._serving.__aexit__(None, None, None), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beside]:
    beside = Beside(tmp_path_factory.mktemp("beside"))
    yield beside
    beside.close()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((b"HTTP/1.1 200 x\r\nX: ", b"y" * MIB), Unavailable),
        ((LONG, b"y" * MIB), Unavailable),
        ((LONG, b"data: {}\n\n" * 10_000), Unavailable),
        (events(choice(token_ids=[2**32])), Unavailable),
        (events(choice(token_ids=[-1])), Unavailable),
        (events(*[choice()] * 9), Unavailable),
        (events(choice(token_ids=["x"])), Unavailable),
        (b"HTTP/1.1 101 x\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", Unavailable),
        (whole({"error": {"message": "no"}}, status=400), InvalidRequest),
    ],
    ids=["header", "line", "empty events", "large id", "negative id", "too many", "no id", "upgrade", "refusal"],
)
def test_a_call_ends_with_a_typed_error_and_the_next_one_is_answered(
    beside: Beside, answer: bytes | tuple[bytes, bytes], expected: type[FairleadError]
) -> None:
    beside.engine.answers["/v1/completions"] = answer if isinstance(answer, bytes) else beside.engine.endless(*answer)
    assert type(beside.outcome()) is expected
    beside.engine.answers.update(HONEST)
    eventually(lambda: beside.outcome() is None, "an honest answer is passed on")
    assert beside.rss() < 300 * MIB


def test_nonsense_about_its_load_does_not_end_the_adapter(beside: Beside) -> None:
    beside.engine.answers["/metrics"] = whole(b"vllm:num_requests_running 1e999\n")
    asked = beside.engine.asked["/metrics"]
    eventually(lambda: beside.engine.asked["/metrics"] > asked + 1, "the adapter has read it, and asks again")
    beside.engine.answers.update(HONEST)
    eventually(lambda: beside.outcome() is None, "an honest answer is passed on")
