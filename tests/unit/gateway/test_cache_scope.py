"""Cached prefixes are shared within the scope that the gateway was told, and public system messages by everybody."""

import hashlib
from pathlib import Path

import grpc
import pytest

from fairlead.v1 import common_pb2, inference_pb2, inference_pb2_grpc
from tests.services import Process, Stack, eventually

RULES = "You are the help desk of a shop that sells boats. Be brief."
PUBLIC = len(f"system: {RULES}\n") // 16 * 16


@pytest.fixture
def files(tmp_path: Path) -> dict[str, object]:
    """Two tenants; the app `desk` has a public system prompt, `notes` has not."""
    keys, profiles = tmp_path / "keys.yaml", tmp_path / "profiles.yaml"
    profiles.write_text(f"apps: {{desk: {{public_system: '{RULES}'}}, notes: {{}}}}")
    lines = [
        f"  - {{hash: {hashlib.sha256(name.encode()).hexdigest()}, tenant: {name}, names_users: true, "
        "apps: [desk, notes]}\n"
        for name in ("acme", "zeta")
    ]
    keys.write_text("keys:\n" + "".join(lines))
    return {"keys": keys, "profiles": profiles}


def cached(gateway: Process, tenant: str, user: str, app: str, *system: str) -> int:
    """Of a long chat, sent once more: the prompt's tokens that were cached."""
    messages = [
        *(common_pb2.ChatMessage(role="system", content=content) for content in system or [RULES]),
        common_pb2.ChatMessage(role="user", content=f"This is what {app} is for. " * 4),
    ]
    request = inference_pb2.GenerateRequest(
        prompt=common_pb2.Prompt(chat=common_pb2.Chat(messages=messages)),
        sampling=common_pb2.SamplingParams(max_tokens=2, ignore_eos=True),
        app=app,
    )
    metadata = [("authorization", f"Bearer {tenant}"), ("x-fairlead-user", user)]
    with grpc.insecure_channel(gateway.address) as channel:
        responses = list(inference_pb2_grpc.InferenceStub(channel).Generate(request, timeout=60, metadata=metadata))
    usage = responses[-1].finished.usage
    assert usage.cached_tokens in (0, PUBLIC, (usage.prompt_tokens - 1) // 16 * 16)
    return usage.cached_tokens


@pytest.mark.parametrize(
    ("scope", "same_tenant", "other_tenant"),
    [
        ("user", False, False),
        ("tenant", True, False),
        ("deployment", True, True),
    ],
)
def test_scopes(stack: Stack, files: dict[str, object], scope: str, same_tenant: bool, other_tenant: bool) -> None:
    stack.worker("a")
    gateway = stack.start("gateway", scheduler=stack.scheduler.address, cache_scope=scope, **files)
    eventually(lambda: gateway.logged("ready"), "a worker is known")
    assert cached(gateway, "acme", "ann", "notes") == 0
    whole = cached(gateway, "acme", "ann", "notes")
    assert whole > PUBLIC
    assert cached(gateway, "acme", "bob", "notes") == (whole if same_tenant else 0)
    assert cached(gateway, "zeta", "ann", "notes") == (whole if other_tenant else 0)


def test_a_public_system_prompt_is_cached_once_for_all(stack: Stack, files: dict[str, object]) -> None:
    stack.worker("a")
    gateway = stack.start("gateway", scheduler=stack.scheduler.address, **files)
    eventually(lambda: gateway.logged("ready"), "a worker is known")
    assert cached(gateway, "acme", "ann", "desk") == 0
    assert cached(gateway, "zeta", "ann", "desk") == PUBLIC > 0, "and not what the user said"
    assert cached(gateway, "zeta", "bob", "desk") > PUBLIC


def test_a_tenants_own_system_prompt_is_not_public(stack: Stack, files: dict[str, object]) -> None:
    stack.worker("a")
    gateway = stack.start("gateway", scheduler=stack.scheduler.address, **files)
    eventually(lambda: gateway.logged("ready"), "a worker is known")
    secret, other = (
        "The password of the shop is swordfish. Tell nobody.",
        "It was swordfish, and is marlin now. Tell nobody.",
    )
    for system, public in (((secret,), 0), ((RULES, secret), PUBLIC), ((other, RULES), 0)):
        cached(gateway, "acme", "ann", "desk", *system)
        assert cached(gateway, "zeta", "bob", "desk", *system) == public, "another tenant could guess it"
