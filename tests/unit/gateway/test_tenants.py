import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead.errors import ClientLimit, FairleadError, InvalidRequest, PermissionDenied, Unauthenticated
from gateway.grpc_caller import shown
from gateway.tenants import CallerIdentity, Credentials, Tenant, Tenants
from serving.config import ConfigError


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


def identify(tenants: Tenants, given: list[tuple[str, str | bytes]]) -> CallerIdentity:
    return tenants.identify(shown(given))


def enter(tenants: Tenants, user: str) -> CallerIdentity:
    """Return the identity of a user that has a call admitted, and open."""
    identity = identify(tenants, metadata("gold", user))
    assert identity.users is not None
    identity.users.enter(identity.client)
    return identity


def leave(identity: CallerIdentity) -> None:
    """End a call."""
    assert identity.users is not None
    identity.users.leave(identity.client)


def test_keys_name_tenants_and_users(tenants: Tenants) -> None:
    gold = CallerIdentity("acme", "acme", 2.0, may_name_users=True, key=digest("gold")[:12])
    assert identify(tenants, metadata("gold")) == gold
    assert identify(tenants, metadata("gold", "ann")) == replace(gold, client="acme/ann")
    solo = CallerIdentity("solo", "solo", 1.0, apps=("chat",), key=digest("plain")[:12])
    assert identify(tenants, metadata("plain")) == solo


def test_without_a_file_everybody_is_default_and_may_name_users() -> None:
    tenants = Tenants.load("")
    assert identify(tenants, []) == CallerIdentity("default", "default", 1.0, is_open=True, may_name_users=True)
    assert identify(tenants, metadata("anything", "ann")).client == "default/ann"


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([], Unauthenticated, "Bearer"),
        ([("authorization", "Basic gold")], Unauthenticated, "Bearer"),
        (metadata("wrong"), Unauthenticated, "unknown API key"),
        (metadata("plain", "ann"), PermissionDenied, "may not name users"),
        (metadata("gold", "a" * 129), InvalidRequest, "128"),
        (metadata("gold", "a\nb"), InvalidRequest, r"printable .* got 'a\\nb'"),
        (metadata("gold", "bob\u202e"), InvalidRequest, r"x-fairlead-user: .* got 'bob\\u202e'"),
        (metadata("gold", " "), InvalidRequest, "visible"),
    ],
)
def test_refusals(
    tenants: Tenants, given: list[tuple[str, str | bytes]], error: type[FairleadError], message: str
) -> None:
    with pytest.raises(error, match=message):
        identify(tenants, given)


@pytest.mark.parametrize(("user", "spelled"), [("bob ", "bob"), (" bob", "bob"), ("Zoe\u0308", "Zo\u00eb")])
def test_spellings_of_one_name_are_one_client(tenants: Tenants, user: str, spelled: str) -> None:
    assert identify(tenants, metadata("gold", user)) == identify(tenants, metadata("gold", spelled))
    assert identify(tenants, metadata("gold", user)).client == f"acme/{spelled}"


def test_names_that_are_merely_mentioned_do_not_count(tenants: Tenants) -> None:
    enter(tenants, "ann")
    for number in range(1000):
        identify(tenants, metadata("gold", f"invented {number}"))
    enter(tenants, "bob")


def test_a_key_may_name_only_so_many_users_at_a_time(tenants: Tenants) -> None:
    ann, _ = enter(tenants, "ann"), enter(tenants, "bob")
    enter(tenants, "ann")
    with pytest.raises(ClientLimit, match="names 2 other users who have calls open; max_users=2"):
        enter(tenants, "eve")
    leave(ann)
    with pytest.raises(ClientLimit):
        enter(tenants, "eve")
    leave(ann)
    enter(tenants, "eve")


def test_a_key_is_bound_to_its_apps(tenants: Tenants) -> None:
    bound = identify(tenants, metadata("plain"))
    assert bound.app("chat", ()) == "chat"
    assert bound.app("", ()) == "chat", "a call that names none has the key's first"
    with pytest.raises(PermissionDenied, match="chat"):
        bound.app("agent", ("agent",))


def test_where_callers_choose_their_app_they_are_not_bound_to_it() -> None:
    keys = {digest("one"): ("chat",), digest("many"): ("chat", "agent"), digest("none"): ()}
    tenants = Tenants({key: Tenant("acme", apps=apps) for key, apps in keys.items()})
    bound = {key: identify(tenants, metadata(key)).is_bound for key in ("one", "many", "none")}
    assert bound == {"one": True, "many": False, "none": True}
    assert not identify(Tenants.load(""), []).is_bound


def test_invented_apps_count_as_the_default_app(tenants: Tenants) -> None:
    unbound = identify(tenants, metadata("gold"))
    assert [unbound.app(name, ("agent",)) for name in ("", "x", "agent")] == ["default"] * 3
    everybody = identify(Tenants.load(""), [])
    assert [everybody.app(name, ("agent",)) for name in ("", "x", "agent")] == ["default", "default", "agent"]


def test_keys_are_replaced_and_keep_the_users_they_named(tenants: Tenants, tmp_path: Path) -> None:
    ann = enter(tenants, "ann")
    path = tmp_path / "new.yaml"
    path.write_text(
        f"keys:\n"
        f"  - {{hash: {digest('gold')}, tenant: acme, tier: silver, names_users: true, max_users: 1}}\n"
        f"  - {{hash: {digest('new')}, tenant: other}}\n"
    )
    tenants.replace(Tenants.load(str(path), {"silver": 1.5}))
    renewed = identify(tenants, metadata("gold", "ann"))
    assert (renewed.share, renewed.tier) == (1.5, "silver")
    with pytest.raises(ClientLimit, match="max_users=1"):
        enter(tenants, "bob")
    leave(ann)
    enter(tenants, "bob")
    assert identify(tenants, metadata("new")).client == "other"
    with pytest.raises(Unauthenticated, match="unknown"):
        identify(tenants, metadata("plain"))


HASH = digest("x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("keys: [", r"yaml:1: is no YAML: expected the node content"),
        ("tenants: []", "yaml:1: tenants: unknown key 'tenants'; known keys: keys"),
        ("keys: []", "keys: must not be empty"),
        ("keys: [7]", r"keys\[0\]: expected a mapping"),
        (f"keys: [{{hash: {HASH}, tenant: a, shares: 2}}]", r"keys\[0\]\.shares: unknown key 'shares'"),
        ("keys: [{hash: abc, tenant: a}]", r"keys\[0\]\.hash"),
        (f"keys: [{{hash: {HASH}}}]", r"keys\[0\]: tenant: is missing"),
        (f"keys: [{{hash: {HASH}, tenant: a/b}}]", r"keys\[0\]\.tenant"),
        (f'keys: [{{hash: {HASH}, tenant: "a\\u200b"}}]', r"keys\[0\]\.tenant: .* got 'a\\u200b'"),
        (f'keys: [{{hash: {HASH}, tenant: a, apps: ["\\u2066x"]}}]', r"apps\[0\]: .* got '\\u2066x'"),
        (
            f"keys: [{{hash: {HASH}, tenant: Zo\u00eb}}, {{hash: {digest('y')}, tenant: 'Zoe\u0308 ', share: 2}}]",
            r"keys\[1\]: share: tenant 'Zo\u00eb' has 1.0",
        ),
        (f"keys: [{{hash: {HASH}, tenant: a, share: 0}}]", r"keys\[0\]\.share"),
        (f"keys: [{{hash: {HASH}, tenant: a, share: .inf}}]", r"keys\[0\]\.share"),
        (f"keys: [{{hash: {HASH}, tenant: a, share: 1000001}}]", r"keys\[0\]\.share: .* at most 1000000, got 1000001"),
        (f"keys: [{{hash: {HASH}, tenant: a, names_users: 1}}]", r"keys\[0\]\.names_users"),
        (f"keys: [{{hash: {HASH}, tenant: a, max_users: true}}]", r"keys\[0\]\.max_users"),
        (f"keys: [{{hash: {HASH}, tenant: a, apps: chat}}]", r"keys\[0\]\.apps"),
        (f"keys: [{{hash: {HASH}, tenant: a}}, {{hash: {HASH}, tenant: b}}]", r"keys\[1\]\.hash: given twice"),
        (f"keys:\n  - hash: {HASH}\n    tenant: a\n    tier: x", r"yaml:4: keys\[0\]\.tier: no such tier"),
        (f"keys:\n  - hash: {HASH}\n    tenant: a\n    share: -1", r"yaml:4: keys\[0\]\.share: .* > 0, got -1"),
        (f"keys:\n  - hash: {HASH}\n    tenant: 2026-13-45", r"yaml:3: keys\[0\]\.tenant: .* month must be in 1"),
        (f"keys:\n  - hash: {HASH}\n    tenant: !acme x", r"yaml:3: keys\[0\]\.tenant: .* tag '!acme'"),
        (f"keys:\n  - hash: {HASH}\n    tenant: !!bool x", r"yaml:3: keys\[0\]\.tenant: cannot be read"),
        (f"keys:\n  - hash: {HASH}\n    tenant: a\n    share: {'9' * 5000}", r"yaml:4: keys\[0\]\.share: cannot be"),
        (f"keys:\n  - hash: {HASH}\n    tenant: a\n    share: 0x{'9' * 5000}", r"yaml:4: keys\[0\]\.share: cannot"),
        ("[" * 3000, "is no YAML: .*recursion"),
        ('keys: "\\UFFFFFFFF"', "is no YAML"),
        (f"keys:\n  - hash: {HASH}\n    hash: {HASH}", r"yaml:3: keys\[0\]\.hash: given twice"),
        (
            f"keys: [{{hash: {HASH}, tenant: a}}, {{hash: {digest('y')}, tenant: a, share: 2}}]",
            r"keys\[1\]: share: tenant 'a' has 1.0",
        ),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as raised:
        Tenants.load(str(path))
    assert str(path) in str(raised.value)


def test_credentials_over_grpc_are_the_metadata_that_is_text() -> None:
    given: list[tuple[str, str | bytes]] = [
        ("authorization", "Bearer k"),
        ("x-fairlead-user", "ann"),
        ("traceparent", b"\xff"),
        ("x-request-id", "7"),
    ]
    assert shown(given) == Credentials(authorization="Bearer k", user="ann", request_id="7")


def test_who_calls_over_grpc_is_said_once() -> None:
    for name in ("authorization", "x-fairlead-user"):
        credentials = shown([(name, "Bearer a"), (name, "Bearer b")])
        with pytest.raises(InvalidRequest, match=f"metadata.{name}: must have one value, got several"):
            Tenants({}).identify(credentials)
    assert shown([("x-fairlead-user", "ann")] * 2) == Credentials(user="ann")
