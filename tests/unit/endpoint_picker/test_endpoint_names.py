"""Endpoints by name: what lookups return, what they do when they fail, and what becomes of requests."""

import asyncio
from collections.abc import Sequence

import pytest

from serving import endpoint_names
from serving.endpoint_names import EndpointNames, resolve


class Names:
    """A name server of which tests change the records."""

    def __init__(self, **records: Sequence[str]) -> None:
        self.records = dict(records)
        self.asked = 0
        self.answered: asyncio.Queue[str] = asyncio.Queue()

    async def resolve(self, host: str) -> Sequence[str]:
        self.asked += 1
        self.answered.put_nowait(host)
        if host not in self.records:
            raise OSError(f"no such host: {host}")
        return self.records[host]


async def test_addresses_stay_as_they_are_and_hosts_are_looked_up() -> None:
    server = Names(pods=["10.0.0.2", "fd00::2"])
    names = EndpointNames(["10.0.0.1:80", "pods:8000", "[fd00::1]:80", "pods:8000"], server.resolve)
    assert names.endpoints == ["10.0.0.1:80", "[fd00::1]:80"]
    await names.look_up()
    assert names.endpoints == ["10.0.0.1:80", "10.0.0.2:8000", "[fd00::2]:8000", "[fd00::1]:80"]
    assert server.asked == 1


async def test_hosts_are_known_once_each_was_found() -> None:
    server = Names(pods=[])
    names = EndpointNames(["pods:80", "others:80"], server.resolve)
    await names.look_up()
    assert not names.is_known
    server.records["others"] = []
    await names.look_up()
    assert names.is_known
    assert EndpointNames(["10.0.0.1:80", "pods:80"], server.resolve).is_known


async def test_a_host_whose_lookup_fails_keeps_its_addresses(caplog: pytest.LogCaptureFixture) -> None:
    server = Names(pods=["10.0.0.2"])
    names = EndpointNames(["pods:80"], server.resolve)
    await names.look_up()
    del server.records["pods"]
    for _ in range(3):
        await names.look_up()
    assert names.endpoints == ["10.0.0.2:80"]
    assert len(caplog.records) == 1  # not one for each lookup
    server.records["pods"] = []
    await names.look_up()
    assert names.endpoints == []


async def test_a_name_that_can_be_no_hosts_is_a_lookup_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    names = EndpointNames([f"{'a' * 64}.local:80", "10.0.0.1:80"])
    await names.look_up()
    assert names.endpoints == ["10.0.0.1:80"]
    assert len(caplog.records) == 1


async def test_changes_are_told_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_names, "LOOK_UP_SECONDS", 0.0)
    server = Names(pods=["10.0.0.2"])
    names = EndpointNames(["pods:80"], server.resolve)
    await names.look_up()
    told: asyncio.Queue[list[str]] = asyncio.Queue()
    server.answered = asyncio.Queue()
    following = asyncio.create_task(names.follow(told.put))
    server.records["pods"] = ["10.0.0.2", "10.0.0.3"]
    assert await told.get() == ["10.0.0.2:80", "10.0.0.3:80"]
    for _ in range(3):
        await server.answered.get()
    server.records["pods"] = ["10.0.0.3"]
    assert await told.get() == ["10.0.0.3:80"]
    following.cancel()


async def test_the_systems_lookup_finds_this_machine() -> None:
    assert "127.0.0.1" in await resolve("localhost")
