"""Callers and their API keys: the tenant of each key, its share, and whether the key may name users.

The keys file holds hashes only (`sha256` of the key, hex):

    keys:
      - {hash: 9f86d0..., tenant: acme, tier: gold, names_users: true, max_users: 1000, apps: [chat]}
      - {hash: 60303a..., tenant: acme, tier: gold, service_tiers: [flex]}

Without a file every caller is the tenant `default`, which may name users.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from fairlead.errors import InvalidRequest, PermissionDenied, Unauthenticated, listed
from gateway.core.named_users import NamedUsers
from serving.config import require
from serving.cost import MAX_WEIGHT
from serving.document import ConfigEntry, read, text_of
from serving.names import normalized
from serving.service_tiers import DEFAULT, FLEX, SERVICE_TIERS
from throttler.core.profiles import DEFAULT_APP
from throttler.core.throttle import Caller

AUTHORIZATION = "authorization"
API_KEY = "x-api-key"
USER = "x-fairlead-user"
MAX_USERS = 1000  # per key, unless it says otherwise
KEY_NAME = 12  # hex digits of a key's hash that name it
NO_TIERS: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The unchecked credentials and ids that a caller sends with a call; a field that it does not send is empty."""

    authorization: str = ""  # "Bearer <API key>"
    user: str = ""  # the user for whom the call is made
    traceparent: str = ""  # the caller's span (W3C Trace Context)
    request_id: str = ""  # the caller's id of the call
    ambiguous: str = ""  # the header of these that came with two values: a proxy may have checked the other one


def ambiguous(fields: Iterable[tuple[str, str]]) -> str:
    """Return the first of `fields` that says who calls and has two values; empty if none has."""
    values: dict[str, str] = {}
    for name, value in fields:
        if name in (AUTHORIZATION, API_KEY, USER) and values.setdefault(name, value) != value:
            return name
    return ""


@dataclass(frozen=True, slots=True)
class Tenant:
    """The tenant and the permissions of one API key."""

    name: str
    share: float = 1.0  # the tenant's weight: twice the share, twice the service
    tier: str = ""  # the name of the share, if it has one
    trusted_users: bool = False  # whether the key may name users, each of which is a separate client
    max_users: int = MAX_USERS  # the largest number of users that the key may name at a time
    apps: tuple[str, ...] = ()  # the apps that the key may name; empty: only the default app
    service_tiers: tuple[str, ...] = SERVICE_TIERS  # those that calls with the key may have


@dataclass(frozen=True, slots=True)
class CallerIdentity:
    """The identity of a caller; `client` is the fairness key: the tenant, or tenant/user."""

    client: str
    tenant: str
    share: float
    tier: str = ""
    apps: tuple[str, ...] = ()
    is_open: bool = False  # whether the gateway has no keys, so that every caller may name every app with a profile
    may_name_users: bool = False
    service_tiers: tuple[str, ...] = SERVICE_TIERS
    key: str = ""  # the beginning of the key's hash; empty where there are no keys
    # Those whom the key names, where it has named this one: who is admitted counts there.
    users: NamedUsers | None = field(default=None, compare=False, repr=False)

    @property
    def is_bound(self) -> bool:
        """Whether the key alone determines the app; if callers choose the app, it must not change the weight."""
        return not self.is_open and len(set(self.apps)) <= 1

    def caller(self, app: str) -> Caller:
        return Caller(self.tenant, self.client, app, self.key)

    def is_background(self, asked: str) -> bool:
        """Return whether a call that asks for the service tier `asked` is of the background class.

        It gets another one of its key's tiers if the key may not have that one.
        """
        return FLEX in self.service_tiers and (asked == FLEX or DEFAULT not in self.service_tiers)

    def may_read(self, client: str) -> bool:
        """Return whether what belongs to `client` may be read: by itself, or by its tenant's key that may name it.

        Such a key reads what belongs to all of its users while it names none.
        """
        is_unnamed = self.may_name_users and self.client == self.tenant
        return client == self.client or (is_unnamed and client.startswith(f"{self.tenant}/"))

    def app(self, named: str, profiled: Collection[str]) -> str:
        """Return the app for which a call is counted; raise PermissionDenied if the key may not name it.

        A key with apps may name one of them, by default its first. For a key without apps every name counts as the
        default app: invented names must not have their own limits. A gateway without keys accepts `profiled` apps.
        """
        if self.apps:
            if named and named not in self.apps:
                raise PermissionDenied(f"app: this key may name {listed(self.apps)}, not {named!r}")
            return named or self.apps[0]
        return named if self.is_open and named in profiled else DEFAULT_APP


# The callers that share cached prefixes. A fast answer reveals that a caller in the scope has sent the same beginning.
CACHE_SCOPES: Mapping[str, Callable[[CallerIdentity], str]] = MappingProxyType(
    {"tenant": lambda identity: identity.tenant, "user": lambda identity: identity.client, "deployment": lambda _: ""}
)


class _ApiKey:
    """A key and the users that it has named."""

    def __init__(self, tenant: Tenant, name: str) -> None:
        self.tenant = tenant
        self._name = name
        self._users = NamedUsers(tenant.max_users)
        self._unnamed = self._identity(tenant.name, None)  # of calls that name no user

    def identify(self, named: str) -> CallerIdentity:
        if not named:
            return self._unnamed
        if not self.tenant.trusted_users:
            raise PermissionDenied(f"{USER}: this key may not name users")
        try:
            user = normalized(named)
        except ValueError as error:
            raise InvalidRequest(str(error), f"metadata.{USER}") from error
        return self._identity(f"{self.tenant.name}/{user}", self._users)

    def keep_users(self, earlier: "_ApiKey") -> None:
        """Take over the users that the same key has named before a reload."""
        self._users = earlier._users
        self._users.most = self.tenant.max_users

    def _identity(self, client: str, users: NamedUsers | None) -> CallerIdentity:
        tenant = self.tenant
        return CallerIdentity(
            client=client,
            tenant=tenant.name,
            share=tenant.share,
            tier=tenant.tier,
            apps=tenant.apps,
            is_open=not self._name,
            may_name_users=tenant.trusted_users,
            service_tiers=tenant.service_tiers,
            key=self._name,
            users=users,
        )


class Tenants:
    """All API keys by hash (sha256, hex); with an empty table every caller is the tenant `default`."""

    def __init__(self, keys: Mapping[str, Tenant]) -> None:
        self._accounts = {bytes.fromhex(key): _ApiKey(tenant, key[:KEY_NAME]) for key, tenant in keys.items()}
        self._open = None if keys else _ApiKey(Tenant("default", trusted_users=True), "")

    @classmethod
    def load(cls, path: str, tiers: Mapping[str, float] = NO_TIERS) -> "Tenants":
        """Read a keys file; an empty `path` means no keys. `tiers` maps names that keys may give to shares.

        Raise ConfigError, which names the file, the line and the key.
        """
        return cls(_parse(text_of(path), path, tiers) if path else {})

    def replace(self, other: "Tenants") -> None:
        """Use the keys of `other` from now on. The users that a remaining key has named stay counted."""
        for digest, account in other._accounts.items():
            if digest in self._accounts:
                account.keep_users(self._accounts[digest])
        self._accounts, self._open = other._accounts, other._open

    def identify(self, credentials: Credentials) -> CallerIdentity:
        """Return the identity of the caller; raise Unauthenticated, PermissionDenied or InvalidRequest."""
        if credentials.ambiguous:  # the values stay unsaid: they may be keys
            raise InvalidRequest("must have one value, got several", f"metadata.{credentials.ambiguous}")
        account = self._open or self._authenticate(credentials.authorization)
        return account.identify(credentials.user)

    def _authenticate(self, authorization: str) -> _ApiKey:
        scheme, _, key = authorization.partition(" ")
        if scheme.lower() != "bearer" or not key:
            raise Unauthenticated(f"{AUTHORIZATION}: expected 'Bearer <API key>'")
        # Only hashes are compared, so the time of a comparison does not reveal how much of a guessed key is right.
        account = self._accounts.get(hashlib.sha256(key.strip().encode()).digest())
        if account is None:
            raise Unauthenticated(f"{AUTHORIZATION}: unknown API key")
        return account


def _parse(text: str, file: str, tiers: Mapping[str, float]) -> dict[str, Tenant]:
    top = read(text, file).fields("keys")
    entries = top["keys"].entries() if "keys" in top else []
    require(bool(entries), f"{file}: keys: must not be empty")
    tenants: dict[str, Tenant] = {}
    shares: dict[str, float] = {}
    for entry in entries:
        values = entry.fields("hash", "tenant", "share", "tier", "names_users", "max_users", "apps", "service_tiers")
        digest, tenant = _digest(entry, values), _tenant(entry, values, tiers)
        if digest in tenants:
            raise values["hash"].complaint("given twice")
        share = shares.setdefault(tenant.name, tenant.share)
        if share != tenant.share:
            raise entry.complaint(f"share: tenant {tenant.name!r} has {share} by an earlier key")
        tenants[digest] = tenant
    return tenants


def _digest(entry: ConfigEntry, values: Mapping[str, ConfigEntry]) -> str:
    digest = _required(entry, values, "hash").text().lower()
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise values["hash"].complaint("expected a sha256 as 64 hex digits")
    return digest


def _tenant(entry: ConfigEntry, values: Mapping[str, ConfigEntry], tiers: Mapping[str, float]) -> Tenant:
    name = _required(entry, values, "tenant").name()
    if "/" in name:
        raise values["tenant"].complaint(f"expected a name without '/', got {name!r}")
    return Tenant(
        name,
        _share(values, tiers),
        values["tier"].text() if "tier" in values else "",
        values["names_users"].flag() if "names_users" in values else False,
        values["max_users"].count() if "max_users" in values else MAX_USERS,
        tuple(app.name() for app in values["apps"].entries()) if "apps" in values else (),
        _service_tiers(values),
    )


def _service_tiers(values: Mapping[str, ConfigEntry]) -> tuple[str, ...]:
    if "service_tiers" not in values:
        return SERVICE_TIERS
    entry = values["service_tiers"]
    tiers = tuple(tier.text() for tier in entry.entries())
    if not tiers or not set(tiers) <= set(SERVICE_TIERS):
        raise entry.complaint(f"expected some of {', '.join(SERVICE_TIERS)}")
    return tiers


def _share(values: Mapping[str, ConfigEntry], tiers: Mapping[str, float]) -> float:
    if "tier" not in values:
        return values["share"].positive(MAX_WEIGHT) if "share" in values else 1.0
    tier = values["tier"].text()
    if "share" in values:
        raise values["share"].complaint("a key has a tier or a share, not both")
    if tier not in tiers:
        raise values["tier"].complaint(f"no such tier; the profiles file has: {', '.join(tiers) or 'none'}")
    return tiers[tier]


def _required(entry: ConfigEntry, values: Mapping[str, ConfigEntry], key: str) -> ConfigEntry:
    if key not in values:
        raise entry.complaint(f"{key}: is missing")
    return values[key]
