"""Handshakes of TLS that do not end: their memory is bounded, and honest callers are served beside them."""

import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.services import DEADLINE, Process, Stack, eventually
from tests.system.attacks.report import Memory, Report
from tests.system.attacks.sizes import Sizes
from tests.unit.gateway.http.test_tls import status
from tests.unit.gateway.test_tls import issue

MOST_GROWTH = 96  # MiB


class Secured:
    """A gateway with TLS, and the certificate that its callers trust."""

    def __init__(self, directory: Path) -> None:
        self.stack = Stack(directory)
        self.stack.worker("a")
        self.roots, key = issue(directory)
        settings = {"tls": f"{self.roots},{key}", "http_listen": "127.0.0.1:0"}
        self.gateway: Process = self.stack.start("gateway", scheduler=self.stack.addresses, **settings)
        self.gateway.wait_for("ready")
        self.port = int(self.gateway.wait_for("listening")["http_port"])


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    secured = Secured(tmp_path)
    yield secured
    secured.stack.close()


def silence(roots: Path) -> bytes:
    return b""


def hello(roots: Path) -> bytes:
    """What a client says first; it does not go on."""
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = ssl.create_default_context(cafile=str(roots)).wrap_bio(received, sent, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    return sent.read()


def part(roots: Path) -> bytes:
    """A hello of 16 KiB but for its end."""
    return bytes.fromhex("160301400001003ffc0303") + bytes(16_000)


@pytest.mark.parametrize("begun", [silence, hello, part])
def test_handshakes_that_do_not_end(
    secured: Secured, sizes: Sizes, report: Report, begun: Callable[[Path], bytes]
) -> None:
    memory, data, count = Memory(gateway=secured.gateway), begun(secured.roots), sizes.frames // 2
    opened = []
    for _ in range(count):
        opened.append(socket.create_connection(("127.0.0.1", secured.port), timeout=DEADLINE))
        opened[-1].sendall(data)
    eventually(lambda: is_closed(opened[0]), "the oldest gives way")
    assert status(secured.port, secured.roots) == 200
    for connection in opened:
        connection.close()
    assert memory.grown < MOST_GROWTH, str(memory)
    report.add(f"handshakes of TLS that end with {begun.__name__}", Counter({"bounded": count}), memory)
    assert not [line for line in secured.gateway.lines() if line["level"] == "error"]


def is_closed(connection: socket.socket) -> bool:
    """Whether the gateway has closed a connection on which it has sent no more than a few messages."""
    connection.setblocking(False)
    try:
        return connection.recv(65536) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
