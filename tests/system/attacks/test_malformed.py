"""Bytes that are no text, and no message: they are refused, and what they hold is not logged."""

import asyncio

import grpc
import pytest

from serving.rpc.channel import secret_metadata
from tests.services import SECRET, Process, Stack, eventually
from tests.system.attacks.http2 import Connection

CALLS = 50
EMPTY = bytes(5)  # a message of no bytes, with its prefix
GENERATE = "/fairlead.v1.Inference/Generate"


async def send(address: str, *metadata: tuple[bytes, bytes]) -> None:
    """Calls with `metadata`, until the service has ended them."""
    connection = await Connection.to(address)
    calls = {connection.begin(GENERATE, EMPTY, *metadata) for _ in range(CALLS)}
    await connection.until_ended(calls)
    connection.close()


def test_metadata_that_is_not_utf8(gateway: Process) -> None:
    asyncio.run(send(gateway.address, (b"authorization", b"Bearer \xffsecretkey")))
    eventually(lambda: len(gateway.logged("call ended")) == CALLS, "every call ended")
    assert {line["outcome"] for line in gateway.logged("call ended")} == {"UNAUTHENTICATED"}
    assert len(gateway.logged("metadata is not UTF-8")) == 1
    assert "secretkey" not in str(gateway.lines())
    assert not [line for line in gateway.lines() if "exception" in line]


@pytest.mark.parametrize(
    ("service", "method"),
    [
        ("scheduler", "/fairlead.v1.Scheduler/Dispatch"),
        ("scheduler", "/fairlead.v1.Scheduler/Attach"),
        ("scheduler", "/fairlead.v1.Scheduler/Watch"),
        ("scheduler", "/fairlead.v1.Admin/DrainWorker"),
        ("worker", "/fairlead.v1.Worker/Session"),
        ("worker", "/fairlead.v1.Tokenizer/Encode"),
    ],
)
def test_internal_messages_that_are_none(shared: Stack, service: str, method: str) -> None:
    process = shared.scheduler if service == "scheduler" else shared.workers["a"]
    with grpc.insecure_channel(process.address) as channel:
        call = channel.stream_stream(method)
        with pytest.raises(grpc.RpcError) as caught:
            list(call(iter([b"\xff\xff\xff"]), timeout=60, metadata=secret_metadata(SECRET)))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "no valid message" in caught.value.details()
    assert not [line for line in process.lines() if "exception" in line]
