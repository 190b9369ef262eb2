"""Addresses as people write them, and what they are told when nobody is there, or somebody else."""

import subprocess
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from fairlead import Client, InvalidRequest, Retries, SyncClient, Unavailable
from fairlead.address import gateway_target

TARGETS = {
    "127.0.0.1:7100": "127.0.0.1:7100",
    "127.0.0.1": "127.0.0.1:7000",
    "Gateway.example": "gateway.example:7000",
    "http://host:80": "host:80",
    "http://host": "host:7000",
    "https://host": "https://host:7000",
    "https://host:443/": "https://host:443",
    "[::1]": "[::1]:7000",
    "https://[::1]:7100": "https://[::1]:7100",
}
WRONG = [
    "",
    "host:port",
    "host:70000",
    ":7000",
    "::1",
    "[::1",
    "[host]:7000",
    "a host:7000",
    "ftp://host",
    "https://",
    "https://host/v1",
    "https://me@host",
    "host:7000?x",
    "http://https://host",
]


@pytest.mark.parametrize(("address", "target"), TARGETS.items())
def test_an_address_is_understood(address: str, target: str) -> None:
    assert gateway_target(address) == target


@pytest.mark.parametrize("address", WRONG)
def test_an_address_that_is_none_is_refused_by_name(address: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Client(address)
    assert caught.value.field == "address"
    assert caught.value.message == (
        f"address: expected host, host:port, http://host:port, or https://host:port for TLS; got {address!r}"
    )


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """A gRPC server's ports: in plain text, and with a certificate that nobody trusts."""
    folder = tmp_path_factory.mktemp("tls")
    chain, key = folder / "tls.crt", folder / "tls.key"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command = ["openssl", "req", "-x509", *curve, *names, "-keyout", str(key), "-out", str(chain)]
    subprocess.run(command, check=True, capture_output=True)
    pair = (Path(key).read_bytes(), Path(chain).read_bytes())
    server = grpc.server(futures.ThreadPoolExecutor(1))
    ports = (
        server.add_insecure_port("127.0.0.1:0"),
        server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair])),
    )
    server.start()
    yield ports
    server.stop(None).wait()


def failure(address: str) -> str:
    """What the error of a call to it says."""
    with SyncClient(address, retries=Retries(attempts=0)) as client, pytest.raises(Unavailable) as caught:
        client.generate("hi", timeout=60)
    assert caught.value.request_id == "", "nobody has heard of the call"
    with SyncClient(address) as client, pytest.raises(Unavailable) as again:
        client.models()
    assert again.value.message == caught.value.message
    return caught.value.message


def test_nobody_listens() -> None:
    assert failure("127.0.0.1:1") == "127.0.0.1:1: connection refused; is `fairlead up` running?"


def test_tls_is_spoken_to_a_plain_port(listening: tuple[int, int]) -> None:
    address = f"https://127.0.0.1:{listening[0]}"
    assert (
        failure(address) == f"{address}: speaks no TLS; without https:// before the address it is called in plain text"
    )


def test_plain_text_is_spoken_to_a_tls_port(listening: tuple[int, int]) -> None:
    address = f"127.0.0.1:{listening[1]}"
    assert failure(f"http://{address}") == (
        f"{address}: closed the connection at once; if it speaks TLS, write https:// before the address"
    )


def test_a_certificate_is_not_trusted(listening: tuple[int, int]) -> None:
    assert "its certificate is not trusted" in failure(f"https://127.0.0.1:{listening[1]}")


def test_a_host_that_does_not_exist() -> None:
    assert failure("nobody.invalid") == "nobody.invalid:7000: there is no host of this name"


def test_a_key_that_cannot_be_sent_is_refused_and_not_shown() -> None:
    with pytest.raises(InvalidRequest) as caught:
        Client(api_key="secret\n")
    assert str(caught.value) == "api_key: must be printable ASCII"
