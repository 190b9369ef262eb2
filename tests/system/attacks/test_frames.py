"""Floods of HTTP/2 frames, and bytes that are no HTTP/2: others are served beside them, and memory stays bounded."""

import asyncio
import contextlib
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from fairlead.v1 import common_pb2, inference_pb2
from tests.services import Process, Stack, eventually
from tests.system.attacks import honest
from tests.system.attacks.conftest import KEY, gateway_of
from tests.system.attacks.http2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Connection,
    field,
    frame,
    request_headers,
)
from tests.system.attacks.report import Memory, Report
from tests.system.attacks.sizes import Sizes

GENERATE = "/fairlead.v1.Inference/Generate"
PRIORITY, CONTINUATION = 2, 9
CANCEL = struct.pack(">I", 8)
LAST = b"the last"  # of a connection's frames: a ping, which is answered after whatever came before
AUTHORIZATION = (b"authorization", b"Bearer " + KEY.encode())
MOST_GROWTH = 64  # MiB


def prefixed(message: bytes) -> bytes:
    """gRPC's prefix: not compressed, and the length."""
    return struct.pack(">BI", 0, len(message)) + message


def request(max_tokens: int) -> bytes:
    sampling = common_pb2.SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    return inference_pb2.GenerateRequest(
        prompt=common_pb2.Prompt(text="Tell me"), sampling=sampling, streaming=inference_pb2.STREAMING_EACH_TOKEN
    ).SerializeToString()


def begun(stream: int, flags: int = END_HEADERS, *metadata: tuple[bytes, bytes]) -> bytes:
    return frame(HEADERS, flags, stream, request_headers(GENERATE, *metadata))


def called(stream: int, message: bytes) -> bytes:
    """A whole call of somebody with a key."""
    return begun(stream, END_HEADERS, AUTHORIZATION) + frame(DATA, END_STREAM, stream, prefixed(message))


def reset(stream: int) -> bytes:
    return frame(RST_STREAM, 0, stream, CANCEL)


def streams(count: int) -> range:
    """A client's."""
    return range(1, 2 * count, 2)


def rapid_reset(count: int) -> bytes:
    """CVE-2023-44487."""
    return b"".join(begun(stream) + reset(stream) for stream in streams(count))


def rapid_reset_of_whole_calls(count: int) -> bytes:
    message = request(100)
    return b"".join(called(stream, message) + reset(stream) for stream in streams(count // 10))


def endless_headers(count: int) -> bytes:
    """CVE-2024-27983 and others: CONTINUATION upon CONTINUATION."""
    more = frame(CONTINUATION, 0, 1, field(b"x-more", b"." * 100))
    return begun(1, 0) + more * count


def empty_continuations(count: int) -> bytes:
    return begun(1, 0) + frame(CONTINUATION, 0, 1, b"") * count


def settings(count: int) -> bytes:
    return frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, 65_535)) * count


def pings(count: int) -> bytes:
    return frame(PING, 0, 0, bytes(8)) * count


def empty_data(count: int) -> bytes:
    return begun(1, END_HEADERS, AUTHORIZATION) + frame(DATA, 0, 1, b"") * count


def priorities(count: int) -> bytes:
    return b"".join(frame(PRIORITY, 0, stream, bytes(5)) for stream in streams(count))


def window_updates(count: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)) * count


def unknown_frames(count: int) -> bytes:
    return frame(0xFA, 0, 0, bytes(100)) * count


FLOODS: list[Callable[[int], bytes]] = [
    rapid_reset,
    rapid_reset_of_whole_calls,
    endless_headers,
    empty_continuations,
    settings,
    pings,
    empty_data,
    priorities,
    window_updates,
    unknown_frames,
]
OTHER_PROTOCOLS = {
    "HTTP/1.1": b"GET / HTTP/1.1\r\nHost: attacked\r\n\r\n",
    "a TLS hello": bytes.fromhex("160301020001000001fc0303") + bytes(500),
    "zeros": bytes(1000),
    "nonsense after the preface": PREFACE + b"\xff" * 1000,
}


async def send(address: str, data: bytes) -> str:
    """What comes of a connection that sends `data`: it stands, or the server has closed it."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    received = b""
    try:
        while chunk := await reader.read(1 << 16):
            received = received[-100:] + chunk
            if LAST in received:
                return "connection stands"
    except ConnectionError:
        pass
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    return "connection closed"


async def flood(address: str, data: bytes) -> str:
    return await send(address, PREFACE + frame(SETTINGS, 0, 0, b"") + data + frame(PING, 0, 0, LAST))


async def beside_honest_calls(gateway: Process, attacked: Process, data: bytes) -> str:
    end, during = await asyncio.gather(flood(attacked.address, data), honest.served(gateway.address))
    assert during == await honest.served(gateway.address) == 2
    return end


@pytest.fixture(scope="module")
def services(shared: Stack, shared_gateway: Process) -> dict[str, Process]:
    """The attacked processes, by what they are."""
    return {"gateway": shared_gateway, "scheduler": shared.scheduler, "worker": shared.workers["a"]}


@pytest.fixture(scope="module")
def memory(services: dict[str, Process]) -> Memory:
    """Of all tests here together."""
    return Memory(**services)


@pytest.mark.parametrize("frames", FLOODS)
def test_a_flood_of_frames(
    services: dict[str, Process], memory: Memory, sizes: Sizes, report: Report, frames: Callable[[int], bytes]
) -> None:
    data = frames(sizes.frames)
    ends = Counter(
        asyncio.run(beside_honest_calls(services["gateway"], attacked, data)) for attacked in services.values()
    )
    assert memory.grown < MOST_GROWTH
    report.add(f"floods of {sizes.frames:,} HTTP/2 frames, {len(FLOODS)} kinds, at each service", ends, memory)


@pytest.mark.parametrize("data", OTHER_PROTOCOLS.values(), ids=OTHER_PROTOCOLS)
def test_bytes_that_are_not_http2_end_the_connection(shared_gateway: Process, data: bytes) -> None:
    assert asyncio.run(send(shared_gateway.address, data)) == "connection closed"
    assert asyncio.run(honest.served(shared_gateway.address)) == 2


def bomb(gateway: Process) -> str:
    """How a call ends whose message is 64 MiB of zeros, and a few kilobytes on the way."""
    with grpc.insecure_channel(gateway.address, compression=grpc.Compression.Gzip) as channel:
        generate = channel.unary_unary(GENERATE)
        with pytest.raises(grpc.RpcError) as caught:
            generate(bytes(64 * 1024 * 1024), metadata=(("authorization", f"Bearer {KEY}"),), timeout=60)
    return str(caught.value.code().name)


def test_gzip_bombs(shared_gateway: Process, memory: Memory, sizes: Sizes, report: Report) -> None:
    count = sizes.frames // 1000
    ends = Counter(bomb(shared_gateway) for _ in range(count))
    assert ends == {"RESOURCE_EXHAUSTED": count}
    assert asyncio.run(honest.served(shared_gateway.address)) == 2
    assert memory.grown < MOST_GROWTH
    report.add("gzip bombs of 64 MiB", ends, memory)


async def beside_calls_that_nobody_reads(gateway: Process, count: int) -> None:
    connection = await Connection.to(gateway.address, window=0)
    body = prefixed(request(3000))
    for _ in range(count):
        connection.begin(GENERATE, body, AUTHORIZATION)
    assert await honest.served(gateway.address) == 2
    await asyncio.to_thread(eventually, lambda: len(given_up_by(gateway)) == count, "all are given up")
    connection.close()


def given_up_by(gateway: Process) -> list[dict[str, object]]:
    return [line for line in gateway.logged("call ended") if "nothing was read for" in line.get("reason", "")]


def test_slow_readers(shared: Stack, tmp_path: Path, sizes: Sizes, report: Report) -> None:
    gateway = gateway_of(shared, tmp_path, reader_seconds=0.5)
    memory, count = Memory(gateway=gateway), sizes.frames // 600
    asyncio.run(beside_calls_that_nobody_reads(gateway, count))
    assert memory.grown < MOST_GROWTH
    report.add("callers that never read", Counter({"given up": count}), memory)
