"""API keys: who calls, with which share, and whether the key may name users.

The keys file holds hashes only (`sha256` of the key, hex):

    keys:
      - {hash: 9f86d0..., tenant: acme, share: 2.0, names_users: true, max_users: 1000, apps: [chat]}

Without a file everybody is the tenant `default`, which may name users.
"""

import hashlib
import hmac
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from fairlead.config import ConfigError, require
from fairlead.errors import InvalidRequest, PermissionDenied, Unauthenticated

AUTHORIZATION = "authorization"
USER = "x-fairlead-user"
MAX_USER_LENGTH = 128


@dataclass(frozen=True, slots=True)
class Tenant:
    """What one API key stands for."""

    name: str
    share: float = 1.0  # larger = more service
    trusted_users: bool = False  # may name users, each of whom is a client of its own
    max_users: int = 1000  # the most users that the key may name
    apps: tuple[str, ...] = ()  # the apps that the key may name; none given = any


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a call is from; `client` is the fairness key: the tenant, or tenant/user."""

    client: str
    tenant: str
    share: float
    apps: tuple[str, ...] = ()

    def check_app(self, app: str) -> None:
        """Raise PermissionDenied when the key may not name `app`."""
        if self.apps and app not in self.apps:
            raise PermissionDenied(f"app: this key may name {', '.join(self.apps)}, not {app!r}")


@dataclass(slots=True)
class _Account:
    tenant: Tenant
    users: set[str] = field(default_factory=set)  # named since the start; only counted and looked up

    def identify(self, user: str) -> Identity:
        if not user:
            return self._identity(self.tenant.name)
        if not self.tenant.trusted_users:
            raise PermissionDenied(f"metadata {USER}: this key may not name users")
        if len(user) > MAX_USER_LENGTH or not user.isprintable():
            raise InvalidRequest(f"must be at most {MAX_USER_LENGTH} printable characters", field=f"metadata.{USER}")
        if user not in self.users:
            if len(self.users) >= self.tenant.max_users:
                raise PermissionDenied(f"metadata {USER}: this key may name at most {self.tenant.max_users} users")
            self.users.add(user)
        return self._identity(f"{self.tenant.name}/{user}")

    def _identity(self, client: str) -> Identity:
        return Identity(client, self.tenant.name, self.tenant.share, self.tenant.apps)


class Tenants:
    """All API keys, by hash (sha256, hex); an empty table = open to everybody as the tenant `default`."""

    def __init__(self, keys: Mapping[str, Tenant]) -> None:
        self._accounts = {bytes.fromhex(digest): _Account(tenant) for digest, tenant in keys.items()}
        self._open = None if keys else _Account(Tenant("default", trusted_users=True))

    @classmethod
    def load(cls, path: str) -> "Tenants":
        """Read a keys file, or none when `path` is empty; raises ConfigError that names the file, the key or line."""
        return cls(_read(Path(path)) if path else {})

    def identify(self, metadata: Iterable[tuple[str, str | bytes]]) -> Identity:
        """Who calls; raises Unauthenticated, PermissionDenied or InvalidRequest."""
        values = {key: value for key, value in metadata if isinstance(value, str)}
        account = self._open or self._authenticate(values.get(AUTHORIZATION, ""))
        return account.identify(values.get(USER, ""))

    def _authenticate(self, authorization: str) -> _Account:
        scheme, _, key = authorization.partition(" ")
        if scheme.lower() != "bearer" or not key:
            raise Unauthenticated(f"metadata {AUTHORIZATION}: expected 'Bearer <API key>'")
        given = hashlib.sha256(key.strip().encode()).digest()
        # Every key is compared, in constant time each: how long it takes tells nothing about the keys.
        found = [account for digest, account in self._accounts.items() if hmac.compare_digest(digest, given)]
        if not found:
            raise Unauthenticated(f"metadata {AUTHORIZATION}: unknown API key")
        return found[0]


def _read(path: Path) -> dict[str, Tenant]:
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:  # a YAML error names the line
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(document, dict) or list(document) != ["keys"] or not isinstance(document["keys"], list):
        raise ConfigError(f"{path}: expected one top-level key, 'keys', with a list")
    require(bool(document["keys"]), f"{path}: keys: must not be empty")
    tenants: dict[str, Tenant] = {}
    shares: dict[str, float] = {}
    for number, entry in enumerate(document["keys"]):
        where = f"{path}: keys[{number}]"
        digest, tenant = _entry(entry, where)
        require(digest not in tenants, f"{where}.hash: given twice")
        share = shares.setdefault(tenant.name, tenant.share)
        require(share == tenant.share, f"{where}.share: tenant {tenant.name!r} has {share} by an earlier key")
        tenants[digest] = tenant
    return tenants


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of the file, its values not yet checked."""

    hash: Any = None
    tenant: Any = None
    share: Any = 1.0
    names_users: Any = False
    max_users: Any = 1000
    apps: Any = ()


def _entry(values: Any, where: str) -> tuple[str, Tenant]:
    require(isinstance(values, dict), f"{where}: expected a mapping")
    known = [item.name for item in fields(_Entry)]
    for key in values:
        require(key in known, f"{where}: unknown key {key!r}; known keys: {', '.join(known)}")
    entry = _Entry(**values)
    require(_is_digest(entry.hash), f"{where}.hash: expected a sha256 as 64 hex digits")
    require(
        isinstance(entry.tenant, str) and entry.tenant != "" and "/" not in entry.tenant,
        f"{where}.tenant: expected a name without '/', got {entry.tenant!r}",
    )
    require(_is_positive(entry.share), f"{where}.share: expected a number > 0, got {entry.share!r}")
    require(isinstance(entry.names_users, bool), f"{where}.names_users: expected true or false")
    require(
        type(entry.max_users) is int and entry.max_users > 0,
        f"{where}.max_users: expected a whole number > 0, got {entry.max_users!r}",
    )
    require(
        isinstance(entry.apps, (list, tuple)) and all(isinstance(app, str) for app in entry.apps),
        f"{where}.apps: expected a list of names",
    )
    tenant = Tenant(entry.tenant, float(entry.share), entry.names_users, entry.max_users, tuple(entry.apps))
    return entry.hash.lower(), tenant


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 64 and all(digit in "0123456789abcdefABCDEF" for digit in value)


def _is_positive(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value > 0
