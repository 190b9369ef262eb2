"""A request's weight is its tier's share times its app's norm, and the norm follows what calls really need."""

import hashlib
from pathlib import Path

import grpc
import pytest

from fairlead.v1 import common_pb2, inference_pb2, inference_pb2_grpc
from tests.services import Process, Stack, eventually

PROFILES = """
tiers: {gold: 4, largest: 1000000}
reference_tokens: 100
apps:
  long:
    expected: {output: 20}
  heavy:
    expected: {output: 300}
"""


def call(gateway: Process, key: str, app: str) -> None:
    request = inference_pb2.GenerateRequest(
        prompt=common_pb2.Prompt(text="hello"),
        sampling=common_pb2.SamplingParams(max_tokens=50, ignore_eos=True),
        app=app,
    )
    with grpc.insecure_channel(gateway.address) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        list(stub.Generate(request, timeout=60, metadata=[("authorization", f"Bearer {key}")]))


def weights(stack: Stack) -> dict[str, float]:
    """By client, service over weighted service since the worker's start."""
    clients = [client for worker in stack.status().services for client in worker.clients]
    return {client.client: client.service / client.weighted_service for client in clients if client.weighted_service}


def test_share_times_norm(stack: Stack, tmp_path: Path) -> None:
    keys, profiles = tmp_path / "keys.yaml", tmp_path / "profiles.yaml"
    profiles.write_text(PROFILES)
    entries = {"plain": "", "rich": ", tier: gold", "agent": ", apps: [long]", "learner": ", apps: [long]"}
    entries["whale"] = ", tier: largest, apps: [heavy]"
    hashes = {name: hashlib.sha256(name.encode()).hexdigest() for name in entries}
    keys.write_text(
        "keys:\n" + "".join(f"  - {{hash: {hashes[name]}, tenant: {name}{more}}}\n" for name, more in entries.items())
    )
    stack.worker("a")
    gateway = stack.start("gateway", scheduler=stack.scheduler.address, keys=keys, profiles=profiles)
    eventually(lambda: gateway.logged("ready"), "a worker is known")
    for name, app in (("plain", ""), ("rich", ""), ("agent", "long"), ("whale", "heavy")):
        call(gateway, name, app)
    call(gateway, "learner", "")  # its first app; the agent's call was twice as long as expected, and more
    eventually(lambda: len(weights(stack)) == 5, "all was reported")
    expected = {"plain": 1.0, "rich": 4.0, "agent": 0.2, "learner": 0.4, "whale": 1e6}  # no more than the largest
    assert weights(stack) == pytest.approx(expected, rel=0.02)
