"""A Redis that wants a password, and one that speaks TLS only."""

import asyncio
import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as Late

from serving.config import ConfigError
from serving.redis_access import open_redis
from tests.ports import free_ports
from tests.redis_server import RedisServer


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """A certificate for 127.0.0.1 that is its own authority; its key lies beside it."""
    certificate, key = tmp_path / "ca.pem", tmp_path / "ca.key"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2", "-nodes"]
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
        *subject,
    ]
    subprocess.run(command, check=True, capture_output=True)
    return certificate


@pytest.fixture
def secured(tmp_path: Path, authority: Path) -> Iterator[tuple[RedisServer, int]]:
    [port] = free_ports(1)
    tls = [
        "--tls-port",
        str(port),
        "--tls-cert-file",
        str(authority),
        "--tls-key-file",
        str(authority.with_suffix(".key")),
    ]
    server = RedisServer(tmp_path, *tls, "--tls-ca-cert-file", str(authority), "--tls-auth-clients", "no")
    server.client.config_set("requirepass", "sesame")
    yield server, port
    server.kill()


async def answer(link: Redis) -> bool:
    """To a ping, however long a busy machine takes for the handshake."""
    while True:
        with contextlib.suppress(Late):
            return bool(await link.ping())


async def test_password_and_tls(secured: tuple[RedisServer, int], authority: Path) -> None:
    _, port = secured
    trusting = f"?ssl_ca_certs={authority}"
    async with open_redis(f"rediss://:sesame@127.0.0.1:{port}{trusting}") as link:
        assert await answer(link)
    for before, after in (("", trusting), (":wrong@", trusting), (":sesame@", "")):
        async with open_redis(f"rediss://{before}127.0.0.1:{port}{after}") as link:
            with pytest.raises((RedisError, OSError)):
                await answer(link)


def test_a_url_that_is_none() -> None:
    with pytest.raises(ConfigError, match=r"redis: .*scheme"):
        open_redis("somewhere")


async def test_a_command_that_is_cancelled_never_ends_as_if_it_were_not(tmp_path: Path) -> None:
    """Wherever it is: else a service that ends would wait for a loop that goes on."""
    server = RedisServer(tmp_path)
    try:
        async with open_redis(server.url) as link:
            for steps in range(40):
                command = asyncio.ensure_future(link.set("key", "value"))
                for _ in range(steps):
                    await asyncio.sleep(0)
                if command.cancel():
                    with contextlib.suppress(asyncio.CancelledError):
                        await command
                    assert command.cancelled(), f"cancelled after {steps} steps"
    finally:
        server.kill()
