import hashlib
from pathlib import Path

import pytest

from fairlead.config import ConfigError
from fairlead.errors import FairleadError, InvalidRequest, PermissionDenied, Unauthenticated
from gateway.tenants import Identity, Tenants


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


@pytest.fixture
def tenants(tmp_path: Path) -> Tenants:
    path = tmp_path / "keys.yaml"
    path.write_text(
        f"keys:\n"
        f"  - {{hash: {digest('gold')}, tenant: acme, share: 2.0, names_users: true, max_users: 2}}\n"
        f"  - {{hash: {digest('plain').upper()}, tenant: solo, apps: [chat]}}\n"
    )
    return Tenants.load(str(path))


def metadata(key: str, user: str = "") -> list[tuple[str, str | bytes]]:
    values: list[tuple[str, str | bytes]] = [("authorization", f"Bearer {key}"), ("trace-bin", b"x")]
    return [*values, ("x-fairlead-user", user)] if user else values


def test_keys_name_tenants_and_users(tenants: Tenants) -> None:
    assert tenants.identify(metadata("gold")) == Identity("acme", "acme", 2.0)
    assert tenants.identify(metadata("gold", "ann")) == Identity("acme/ann", "acme", 2.0)
    assert tenants.identify(metadata("plain")) == Identity("solo", "solo", 1.0, ("chat",))


def test_without_a_file_everybody_is_default_and_may_name_users() -> None:
    tenants = Tenants.load("")
    assert tenants.identify([]) == Identity("default", "default", 1.0)
    assert tenants.identify(metadata("anything", "ann")).client == "default/ann"


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([], Unauthenticated, "Bearer"),
        ([("authorization", "Basic gold")], Unauthenticated, "Bearer"),
        (metadata("wrong"), Unauthenticated, "unknown API key"),
        (metadata("plain", "ann"), PermissionDenied, "may not name users"),
        (metadata("gold", "a" * 129), InvalidRequest, "128"),
        (metadata("gold", "a\nb"), InvalidRequest, "printable"),
    ],
)
def test_refusals(
    tenants: Tenants, given: list[tuple[str, str | bytes]], error: type[FairleadError], message: str
) -> None:
    with pytest.raises(error, match=message):
        tenants.identify(given)


def test_a_key_may_name_only_so_many_users(tenants: Tenants) -> None:
    for user in ("ann", "bob", "ann"):
        tenants.identify(metadata("gold", user))
    with pytest.raises(PermissionDenied, match="at most 2 users"):
        tenants.identify(metadata("gold", "eve"))
    assert tenants.identify(metadata("gold", "bob")).client == "acme/bob"


def test_a_key_is_bound_to_its_apps(tenants: Tenants) -> None:
    bound = tenants.identify(metadata("plain"))
    bound.check_app("chat")
    with pytest.raises(PermissionDenied, match="chat"):
        bound.check_app("agent")
    tenants.identify(metadata("gold")).check_app("agent")


HASH = digest("x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("keys: [", "line 1"),
        ("tenants: []", "'keys'"),
        ("keys: []", "keys: must not be empty"),
        ("keys: [7]", r"keys\[0\]: expected a mapping"),
        (f"keys: [{{hash: {HASH}, tenant: a, shares: 2}}]", r"keys\[0\]: unknown key 'shares'"),
        ("keys: [{hash: abc, tenant: a}]", r"keys\[0\]\.hash"),
        (f"keys: [{{hash: {HASH}}}]", r"keys\[0\]\.tenant"),
        (f"keys: [{{hash: {HASH}, tenant: a/b}}]", r"keys\[0\]\.tenant"),
        (f"keys: [{{hash: {HASH}, tenant: a, share: 0}}]", r"keys\[0\]\.share"),
        (f"keys: [{{hash: {HASH}, tenant: a, share: .inf}}]", r"keys\[0\]\.share"),
        (f"keys: [{{hash: {HASH}, tenant: a, names_users: 1}}]", r"keys\[0\]\.names_users"),
        (f"keys: [{{hash: {HASH}, tenant: a, max_users: true}}]", r"keys\[0\]\.max_users"),
        (f"keys: [{{hash: {HASH}, tenant: a, apps: chat}}]", r"keys\[0\]\.apps"),
        (f"keys: [{{hash: {HASH}, tenant: a}}, {{hash: {HASH}, tenant: b}}]", r"keys\[1\]\.hash: given twice"),
        (
            f"keys: [{{hash: {HASH}, tenant: a}}, {{hash: {digest('y')}, tenant: a, share: 2}}]",
            r"keys\[1\]\.share: tenant 'a' has 1.0",
        ),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as raised:
        Tenants.load(str(path))
    assert str(path) in str(raised.value)
