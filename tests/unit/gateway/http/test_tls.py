"""HTTP over TLS, with the certificate of the gRPC port, and one that is replaced while the gateway runs."""

import http.client
import ssl
from pathlib import Path

import pytest

from tests.services import Stack, eventually
from tests.unit.gateway.http.http_client import HttpClient
from tests.unit.gateway.test_tls import issue


def status(port: int, roots: Path) -> int:
    """What a client that trusts `roots` only is answered."""
    connection = http.client.HTTPSConnection("localhost", port, context=ssl.create_default_context(cafile=str(roots)))
    try:
        connection.request("GET", "/v1/models")
        return connection.getresponse().status
    finally:
        connection.close()


def test_calls_are_encrypted_and_the_certificate_is_replaced(stack: Stack, tmp_path: Path) -> None:
    chain, key = issue(tmp_path)
    stack.worker("a")
    gateway = stack.start("gateway", scheduler=stack.addresses, tls=f"{chain},{key}", http_listen="127.0.0.1:0")
    port = gateway.wait_for("listening")["http_port"]
    eventually(lambda: status(port, chain) == 200, "the gateway knows the worker")
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        HttpClient(port).get("/v1/models")
    old = tmp_path / "old.crt"
    old.write_bytes(chain.read_bytes())
    chain.write_text("no certificate")
    assert status(port, old) == 200, "what is no use is not taken"
    issue(tmp_path)
    assert status(port, chain) == 200
    with pytest.raises(ssl.SSLError):
        status(port, old)
