"""Clients before, between and after event loops, and what is closed."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent import futures

import grpc
import pytest

from fairlead import Cancelled, Client, Closed, SyncClient
from fairlead.connections import Connections
from fairlead.v1 import inference_pb2, inference_pb2_grpc
from tests.unit.fairlead.test_client import Peer, address, peer

__all__ = ["address", "peer"]
MODULE_LEVEL = """
import asyncio, sys, fairlead
client = fairlead.Client(sys.argv[1])

async def text() -> str:
    return (await client.generate("hi")).text

print(asyncio.run(text()), asyncio.run(text()))
"""


class Patient(Peer):
    """Begins, and goes on when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let = threading.Event()

    def Generate(
        self, request: inference_pb2.GenerateRequest, context: grpc.ServicerContext
    ) -> Iterator[inference_pb2.GenerateResponse]:
        responses = super().Generate(request, context)
        yield next(responses)
        yield next(responses)
        self.let.wait()
        yield from responses


@pytest.fixture
def patient() -> Iterator[str]:
    """The address of one that is let go at the end only."""
    servicer, server = Patient(), grpc.server(futures.ThreadPoolExecutor(2))
    inference_pb2_grpc.add_InferenceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    servicer.let.set()
    server.stop(None).wait()


async def text_of(client: Client) -> str:
    return (await client.generate("hi")).text


def test_a_client_serves_one_loop_after_the_other(address: str) -> None:
    client = Client(address)
    assert [asyncio.run(text_of(client)) for _ in range(3)] == ["Hello"] * 3
    asyncio.run(client.close())


def test_a_client_serves_several_loops_at_once(address: str) -> None:
    client = Client(address)
    with futures.ThreadPoolExecutor(4) as threads:
        texts = threads.map(lambda _: asyncio.run(text_of(client)), range(8))
        assert list(texts) == ["Hello"] * 8


def test_loops_of_several_threads_forget_ended_loops_at_the_same_time() -> None:
    async def connect() -> None:
        connections.stub()

    connections, interval = Connections("127.0.0.1:1"), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads interrupt each other between any two instructions
    try:
        with futures.ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda _: asyncio.run(connect()), range(200)))
    finally:
        sys.setswitchinterval(interval)


def test_a_client_that_nobody_closes_ends_with_its_program_in_silence(address: str) -> None:
    command = [sys.executable, "-W", "error", "-c", MODULE_LEVEL, address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Hello Hello\n", "")


async def test_a_closed_client_makes_no_call(address: str, peer: Peer) -> None:
    client = Client(address)
    assert await text_of(client) == "Hello"
    interaction = client.interaction()
    await client.close()
    await client.close()
    for call in (client.generate("hi"), client.models(), client.stream("hi").wait(), interaction.generate("hi")):
        with pytest.raises(Closed, match="the client is closed"):
            await call
    assert len(peer.requests) == 1


async def test_calls_in_progress_when_the_client_closes_are_cancelled(patient: str) -> None:
    client = Client(patient)
    chunks = aiter(client.stream("hi"))
    assert (await anext(chunks)).text == "Hel"
    reading = asyncio.ensure_future(anext(chunks))
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(Cancelled):
        await reading


def test_a_closed_blocking_client_makes_no_call(address: str, peer: Peer) -> None:
    client = SyncClient(address)
    assert client.generate("hi").text == "Hello"
    stream, begun, interaction = client.stream("hi"), client.stream("hi"), client.interaction()
    assert next(begun).text == "Hel"
    client.close()
    client.close()
    for call in (
        lambda: client.generate("hi"),
        client.models,
        stream.wait,
        lambda: next(begun),
        lambda: interaction.generate("hi"),
        lambda: interaction.stream("hi").wait(),
    ):
        with pytest.raises(Closed):
            call()
    begun.close()
    with interaction:
        pass
    assert len(peer.requests) == 2


def test_closing_a_blocking_client_releases_who_waits_in_another_thread(patient: str) -> None:
    client, begun = SyncClient(patient), threading.Event()

    def read() -> None:
        for _ in client.stream("hi"):
            begun.set()

    with futures.ThreadPoolExecutor(1) as threads:
        reading = threads.submit(read)
        assert begun.wait(60)
        client.close()
        with pytest.raises(Cancelled):
            reading.result(60)


async def test_an_interaction_that_is_over_makes_no_call(address: str, peer: Peer) -> None:
    async with Client(address) as client:
        async with client.interaction() as interaction:
            await interaction.generate("one")
        with pytest.raises(Closed, match=interaction.id):
            await interaction.generate("two")
        with pytest.raises(Closed):
            interaction.stream("two")
    assert len(peer.requests) == 1
    assert len(peer.ended) == 1
