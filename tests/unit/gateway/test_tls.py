"""The public listener with TLS: calls, health checks beside it, and a certificate that is replaced."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fairlead.v1 import inference_pb2, inference_pb2_grpc
from gateway.config import GatewayConfig
from serving.config import ConfigError
from serving.rpc.tls import Certificate
from tests.services import SECRET, Process, Stack, eventually
from tests.system.faults.load import request_for

CLIENT = """
import sys, fairlead
with fairlead.SyncClient(sys.argv[1]) as client:
    print(len(client.generate("hello", max_tokens=5, ignore_eos=True).text))
"""


def issue(folder: Path, name: str = "localhost") -> tuple[Path, Path]:
    """A certificate that vouches for itself, and its key."""
    chain, key = folder / "tls.crt", folder / "tls.key"
    subject = ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command = ["openssl", "req", "-x509", *curve, *subject, "-keyout", str(key), "-out", str(chain)]
    subprocess.run(command, check=True, capture_output=True)
    return chain, key


def secure(stack: Stack, chain: Path, key: Path) -> tuple[Process, int]:
    """A gateway with TLS, and its port."""
    stack.worker("w0")
    gateway = stack.start("gateway", scheduler=stack.addresses, tls=f"{chain},{key}", health_listen="127.0.0.1:0")
    port = int(gateway.address.rpartition(":")[2])
    eventually(lambda: gateway.logged("ready"), "it knows the worker")
    return gateway, port


def generate(port: int, roots: Path) -> "subprocess.CompletedProcess[str]":
    """A call by the SDK, in a process that trusts `roots` only."""
    environment = {**os.environ, "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(roots)}
    command = [sys.executable, "-c", CLIENT, f"https://localhost:{port}"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_calls_are_encrypted_and_probes_need_not_be(stack: Stack, tmp_path: Path) -> None:
    chain, key = issue(tmp_path)
    gateway, port = secure(stack, chain, key)
    assert generate(port, chain).stdout == "5\n"
    with grpc.insecure_channel(f"127.0.0.1:{port}") as plain, pytest.raises(grpc.RpcError) as refused:
        inference_pb2_grpc.InferenceStub(plain).ListModels(inference_pb2.ListModelsRequest(), timeout=60)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    health_port = gateway.logged("listening")[0]["health_port"]
    with grpc.insecure_channel(f"127.0.0.1:{health_port}") as probe:
        answer = health_pb2_grpc.HealthStub(probe).Check(health_pb2.HealthCheckRequest(), timeout=60)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.RpcError) as missing:
            inference_pb2_grpc.InferenceStub(probe).ListModels(inference_pb2.ListModelsRequest(), timeout=60)
    assert missing.value.code() is grpc.StatusCode.UNIMPLEMENTED, "nothing but health is served in clear"
    assert not gateway.logged("the listener is public and has no TLS")
    assert gateway.terminate() == 0


def models(port: int, roots: bytes) -> int:
    """How many models a client that trusts `roots` only is told of."""
    credentials = grpc.ssl_channel_credentials(roots)
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.secure_channel(f"localhost:{port}", credentials, options) as channel:
        request = inference_pb2.ListModelsRequest()
        return len(inference_pb2_grpc.InferenceStub(channel).ListModels(request, timeout=60).models)


def test_a_certificate_is_replaced_while_the_gateway_runs(stack: Stack, tmp_path: Path) -> None:
    chain, key = issue(tmp_path)
    gateway, port = secure(stack, chain, key)
    old = chain.read_bytes()
    chain.write_text("no certificate")
    assert models(port, old) == 1, "what is no use is not taken"
    issue(tmp_path)
    assert models(port, chain.read_bytes()) == 1
    assert gateway.logged("certificate renewed")
    with pytest.raises(grpc.RpcError):
        models(port, old)


def authority(folder: Path) -> tuple[Path, Path]:
    """An authority's certificate and key."""
    folder.mkdir()
    return issue(folder, "authority")


def signed(folder: Path, ca: tuple[Path, Path]) -> tuple[bytes, bytes]:
    """A certificate for localhost that the authority vouches for, and its key."""
    folder.mkdir()
    chain, key = folder / "tls.crt", folder / "tls.key"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    by = ["-CA", str(ca[0]), "-CAkey", str(ca[1])]
    command = ["openssl", "req", "-x509", *curve, *subject, *by, "-keyout", str(key), "-out", str(chain)]
    subprocess.run(command, check=True, capture_output=True)
    return chain.read_bytes(), key.read_bytes()


def streamed(port: int, roots: bytes) -> int:
    """The tokens of a call on a new connection."""
    with grpc.secure_channel(
        f"localhost:{port}", grpc.ssl_channel_credentials(roots), [("grpc.use_local_subchannel_pool", 1)]
    ) as channel:
        *_, last = inference_pb2_grpc.InferenceStub(channel).Generate(request_for("hello", 5), timeout=60)
        return int(last.finished.usage.output_tokens)


def test_no_call_fails_while_the_certificate_is_replaced_again_and_again(stack: Stack, tmp_path: Path) -> None:
    ca = authority(tmp_path / "ca")
    pairs = [signed(tmp_path / str(number), ca) for number in range(3)]
    chain, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    chain.write_bytes(pairs[0][0])
    key.write_bytes(pairs[0][1])
    gateway, port = secure(stack, chain, key)
    roots, done = ca[0].read_bytes(), threading.Event()

    def call() -> int:
        calls = 0
        while not done.is_set() or not calls:
            assert streamed(port, roots) == 5
            calls += 1
        return calls

    with ThreadPoolExecutor(4) as callers:
        calling = [callers.submit(call) for _ in range(4)]
        try:
            for turn in range(20):  # one file after the other: between the two they do not belong together
                chain.write_bytes(pairs[turn % 3][0])
                models(port, roots)
                key.write_bytes(pairs[turn % 3][1])
                models(port, roots)
        finally:
            done.set()
        assert sum(each.result() for each in calling) >= 4
    assert gateway.logged("certificate renewed")


def test_files_that_cannot_be_used_are_logged_once_and_not_at_every_handshake(stack: Stack, tmp_path: Path) -> None:
    chain, key = issue(tmp_path)
    old = chain.read_bytes()
    gateway, port = secure(stack, chain, key)
    chain.write_text("no certificate")
    for _ in range(5):
        assert models(port, old) == 1
    complaints = [line for line in gateway.lines() if "the new certificate cannot be used" in line["message"]]
    assert len(complaints) == 1


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    chain, key = issue(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    for wrong in ((chain, issue(other)[1]), (chain, tmp_path / "missing"), (key, key)):
        with pytest.raises(ConfigError, match=r"^tls: "):
            Certificate(str(wrong[0]), str(wrong[1]))
    with pytest.raises(ConfigError, match=r"tls: expected CERTIFICATE,KEY, got"):
        GatewayConfig(secret=SECRET, tls=str(chain))
