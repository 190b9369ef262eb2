"""`[::]`, and no host, are every address of both families, for every kind of listener."""

import asyncio
import contextlib
import itertools
import socket

import pytest

from gateway.http.server import HttpServer
from serving.rpc import server
from serving.rpc.address import bracketed, listening_hosts
from serving.rpc.channel import MAX_CONNECTIONS, SERVER_OPTIONS
from serving.rpc.server import Server
from serving.telemetry.scrape import ScrapeServer
from tests.ports import free_ports

HAS_IPV6 = socket.has_dualstack_ipv6()


def reached(port: int) -> list[str]:
    """The loopback addresses at which somebody listens."""
    found = []
    for address in ("127.0.0.1", "::1") if HAS_IPV6 else ("127.0.0.1",):
        with socket.create_connection((address, port), timeout=60):
            found.append(address)
    return found


async def nothing(scope: object, receive: object, send: object) -> None: ...


@pytest.mark.parametrize("every", ["[::]", ""])
async def test_both_families_are_listened_on(every: str) -> None:
    ports = free_ports(3)
    addresses = [f"{every}:{port}" for port in ports]
    grpc = Server(addresses[0])
    http = HttpServer(addresses[1], nothing, None, seconds=1, reader_seconds=1)
    metrics = ScrapeServer(addresses[2], str)
    await grpc.start()
    await http.start()
    await metrics.start()
    everywhere = ["127.0.0.1", "::1"] if HAS_IPV6 else ["127.0.0.1"]
    assert [reached(port) for port in ports] == [everywhere] * 3
    await grpc.stop(0)
    await http.stop(0)
    await metrics.stop()


def test_other_hosts_are_listened_on_as_they_are() -> None:
    assert listening_hosts("[::1]:7000") == ["::1"]
    assert listening_hosts("0.0.0.0:7000") == ["0.0.0.0"]
    assert listening_hosts(":7000") is None


@pytest.mark.parametrize(
    ("address", "written"),
    [
        ("fd00::7:7100", "[fd00::7]:7100"),
        ("[fd00::7]:7100", "[fd00::7]:7100"),
        ("10.0.0.7:7100", "10.0.0.7:7100"),
        ("worker-0.workers:7100", "worker-0.workers:7100"),
        ("", ""),
    ],
)
def test_a_pods_address_becomes_one_that_can_be_called(address: str, written: str) -> None:
    assert bracketed(address) == written


async def test_a_grpc_server_closes_connections_above_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    fewer = [(name, 4 if value == MAX_CONNECTIONS else value) for name, value in SERVER_OPTIONS]
    monkeypatch.setattr(server, "SERVER_OPTIONS", fewer)
    grpc = Server("127.0.0.1:0")
    await grpc.start()
    opened = [await asyncio.open_connection("127.0.0.1", grpc.port) for _ in range(8)]
    ends = [asyncio.create_task(until_closed(reader)) for reader, _ in opened]
    for end in itertools.islice(asyncio.as_completed(ends), 4):
        await end
    assert sum(end.done() for end in ends) == 4
    for _, writer in opened:
        writer.close()
    await asyncio.gather(*ends)
    await grpc.stop(0)


async def until_closed(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        while await reader.read(1000):
            pass
