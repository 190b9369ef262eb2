"""A request's weight is its tier's share times the norm of the app that its key is bound to, as calls need."""

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


KEYS = {
    "plain": "",
    "rich": "tier: gold",
    "whale": "tier: largest, apps: [heavy]",
    "long": "names_users: true, apps: [long]",
    "heavy": "names_users: true, apps: [heavy]",
    "either": "names_users: true, apps: [long, heavy]",
}


@pytest.fixture
def gateway(stack: Stack, tmp_path: Path) -> Process:
    keys, profiles = tmp_path / "keys.yaml", tmp_path / "profiles.yaml"
    profiles.write_text(PROFILES)
    entries = [
        f"  - {{hash: {hashlib.sha256(name.encode()).hexdigest()}, tenant: {name}, {more}}}\n"
        for name, more in KEYS.items()
    ]
    keys.write_text("keys:\n" + "".join(entries))
    return started(stack, keys=keys, profiles=profiles)


def started(stack: Stack, **options: Path) -> Process:
    stack.worker("a")
    gateway = stack.start("gateway", scheduler=stack.scheduler.address, **options)
    eventually(lambda: gateway.logged("ready"), "a worker is known")
    return gateway


def call(gateway: Process, key: str, user: str = "", app: str = "") -> None:
    """Needs 5 + 50 tokens, whatever the app is called."""
    request = inference_pb2.GenerateRequest(
        prompt=common_pb2.Prompt(text="hello"),
        sampling=common_pb2.SamplingParams(max_tokens=50, ignore_eos=True),
        app=app,
    )
    metadata = [("authorization", f"Bearer {key}"), *([("x-fairlead-user", user)] if user else [])]
    with grpc.insecure_channel(gateway.address) as channel:
        list(inference_pb2_grpc.InferenceStub(channel).Generate(request, timeout=60, metadata=metadata))


def weights(stack: Stack, clients: int) -> dict[str, float]:
    """By client, service over weighted service since the worker's start."""

    def reported() -> dict[str, float]:
        found = [client for worker in stack.status().services for client in worker.clients]
        return {client.client: client.service / client.weighted_service for client in found if client.weighted_service}

    eventually(lambda: len(reported()) == clients, "all was reported")
    return reported()


def test_share_times_norm_and_no_more_than_the_largest(stack: Stack, gateway: Process) -> None:
    for key in ("plain", "rich", "whale"):
        call(gateway, key)
    assert weights(stack, 3) == pytest.approx({"plain": 1.0, "rich": 4.0, "whale": 1e6}, rel=0.02)


def test_the_norm_of_a_bound_app_follows_what_its_calls_need(stack: Stack, gateway: Process) -> None:
    for key in ("long", "heavy"):
        for user in ("first", "second"):
            call(gateway, key, user)
    expected = {
        "long/first": 0.2,
        "long/second": 0.4,  # 0.55, but no more than twice what was declared
        "heavy/first": 3.0,
        "heavy/second": 0.55,
    }
    assert weights(stack, 4) == pytest.approx(expected, rel=0.02)


def test_the_name_of_an_app_that_the_caller_chooses_weighs_nothing(stack: Stack, gateway: Process) -> None:
    for app in ("long", "heavy"):
        call(gateway, "either", app, app)
    assert weights(stack, 2) == pytest.approx({"either/long": 1.0, "either/heavy": 1.0}, rel=0.02)


def test_without_keys_the_name_of_an_app_weighs_nothing(stack: Stack, tmp_path: Path) -> None:
    profiles = tmp_path / "profiles.yaml"
    profiles.write_text(PROFILES)
    gateway = started(stack, profiles=profiles)
    for app in ("long", "heavy"):
        call(gateway, "", app, app)
    assert weights(stack, 2) == pytest.approx({"default/long": 1.0, "default/heavy": 1.0}, rel=0.02)
