"""The Kubernetes API as far as a picker reads it: collections of objects, listed and watched (API concepts, "Efficient
detection of changes")."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import urlencode

import msgspec

from serving.config import ConfigError, addresses, require
from serving.http_client import HttpClient, HttpResponse

T = TypeVar("T")
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
CALL_SECONDS = 10.0  # until the API server answers
# It ends each watch after this time. A watch that is silent for longer has lost its connection unnoticed.
WATCH_SECONDS = 60
GONE = 410
LONGEST_MESSAGE = 500  # characters of an error


class ApiRefused(Exception):
    """The API server answered with an error."""


class VersionGone(Exception):
    """The API server no longer has the changes since the version that was asked for."""


class ListMeta(msgspec.Struct, rename="camel"):
    """The metadata of an object or of a list: its name, its version, and the time of its deletion if it is deleted."""

    name: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None


class Collection(msgspec.Struct, Generic[T]):
    """The objects of a list, and the version from which to watch it."""

    metadata: ListMeta
    items: list[T] | None = None


class Change(msgspec.Struct):
    """A change of one object, which is as it is afterwards or, if it was deleted, as it was."""

    type: str
    object: msgspec.Raw


class ApiStatus(msgspec.Struct):
    """An error has a status of HTTP and a message."""

    code: int = 0
    message: str = ""


class Bookmark(msgspec.Struct):
    """Any object, of which the version alone is read."""

    metadata: ListMeta


@dataclass(frozen=True, slots=True)
class ClusterApi:
    """Calls the API server at `address`. The token is read again for each call, because the kubelet replaces it."""

    address: str
    tls: ssl.SSLContext | None
    token_file: Path | None

    async def list(self, path: str, selector: Mapping[str, str], kind: type[T]) -> Collection[T]:
        """Return the objects of `kind` at `path`; raises OSError, ApiRefused and msgspec.DecodeError."""
        async with asyncio.timeout(CALL_SECONDS), self._client().call("GET", _target(path, selector)) as response:
            await _check(response)
            # A generic alias is made at run time, which type checkers do not follow.
            found: Collection[T] = msgspec.json.decode(await response.body(), type=Collection[kind])  # type: ignore[valid-type]
            return found

    @asynccontextmanager
    async def watch(self, path: str, selector: Mapping[str, str], version: str) -> AsyncIterator[AsyncIterator[Change]]:
        """Open a watch of the changes since `version`, which the API server ends some time; raises as `list`, and
        VersionGone, here or later."""
        asked = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(WATCH_SECONDS)}
        target = _target(path, {**selector, "resourceVersion": version, **asked})
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(CALL_SECONDS):
                response = await stack.enter_async_context(self._client().call("GET", target))
                await _check(response)
            yield _changes(response)

    def _client(self) -> HttpClient:
        token = self.token_file.read_text().strip() if self.token_file else ""
        return HttpClient(self.address, token, self.tls)


def cluster_api(url: str, environ: Mapping[str, str]) -> ClusterApi:
    """Return the API server at `url`, or without one that of the cluster in which this process is a pod.

    Raises ConfigError.
    """
    if url:
        scheme, _, address = url.rstrip("/").partition("://")
        require(scheme == "http", f"endpoints: expected http://host:port, got {url!r}")
        require(len(addresses(address, "endpoints")) == 1, f"endpoints: expected one host:port, got {url!r}")
        return ClusterApi(address, None, None)
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT_HTTPS", "443")
    if not host:
        raise ConfigError("endpoints: this process runs in no pod of Kubernetes; write http://host:port/namespace/name")
    return in_cluster(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", SERVICE_ACCOUNT)


def in_cluster(address: str, service_account: Path) -> ClusterApi:
    """Return the API server at `address`, as the files in `service_account` name and admit it; raises ConfigError."""
    try:
        tls = ssl.create_default_context(cafile=service_account / "ca.crt")
    except OSError as error:
        raise ConfigError(f"inference_pool: {service_account / 'ca.crt'}: {error}") from error
    return ClusterApi(address, tls, service_account / "token")


async def _changes(response: HttpResponse) -> AsyncIterator[Change]:
    lines = response.lines()
    while True:
        async with asyncio.timeout(WATCH_SECONDS + CALL_SECONDS):
            line = await anext(lines, None)
        if line is None:
            return
        change = msgspec.json.decode(line, type=Change)
        if change.type == "ERROR":
            _refuse(msgspec.json.decode(change.object, type=ApiStatus))
        yield change


def _target(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}"


async def _check(response: HttpResponse) -> None:
    if response.status == 200:
        return
    body = await response.body()
    try:
        status = msgspec.json.decode(body, type=ApiStatus)
    except msgspec.DecodeError:
        status = ApiStatus(message=body[:LONGEST_MESSAGE].decode(errors="replace"))
    _refuse(ApiStatus(response.status, status.message))


def _refuse(status: ApiStatus) -> None:
    if status.code == GONE:
        raise VersionGone(status.message)
    raise ApiRefused(f"{status.code}: {status.message[:LONGEST_MESSAGE]}")
