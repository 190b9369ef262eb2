"""What web pages may do: a browser sends what any page of the web asks it to, from within the operator's network.

A page can have its own name lead to this machine (DNS rebinding): the browser then takes the gateway for a part of the
page. It can send requests to other origins without reading the answers, unless they need a preflight (CORS).
"""

import ipaddress
import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import urlsplit

from fairlead.errors import PermissionDenied
from gateway.http.asgi import Headers
from gateway.http.request import HttpRequest

PREFLIGHT_SECONDS = b"600"
NAME_WITHOUT_DOT = re.compile(r"[a-z]([a-z0-9_-]{0,61}[a-z0-9])?")
PRIVATE = (".localhost", ".internal", ".local")  # ends of names that the DNS of the web does not have (RFC 6761, 6762)
MOST_NAMES = 64  # values of the header that are remembered
PORTS = {"http": 80, "https": 443}


class HostNames:
    """The names under which a listener is served to browsers: those of this machine, and `names`.

    So are names without a dot and those of private domains, such as `host.docker.internal`: they are those of a
    container's or an office's network, and no page of the web has one. With `is_public` any IP address will do, too:
    what has no name cannot be rebound.
    """

    def __init__(self, names: Iterable[str], *, is_public: bool) -> None:
        self._names = frozenset(name.lower() for name in names)
        self._is_public = is_public

    def __contains__(self, host: object) -> bool:
        name = str(host).lower()
        if name.endswith(PRIVATE) or name in self._names or NAME_WITHOUT_DOT.fullmatch(name):
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        address = getattr(address, "ipv4_mapped", None) or address  # of ::ffff:127.0.0.1
        return self._is_public or address.is_loopback or address.is_unspecified


class BrowserPolicy:
    """Refuses what pages of other origins than `origins` ask for, unless callers show a key, which no page has.

    Without `hosts` every name is served: callers show a key, or a certificate proves the listener's name.
    """

    def __init__(self, hosts: HostNames | None, origins: Iterable[str], *, needs_key: bool) -> None:
        # Callers use a few names, and send one with each request.
        self._is_served = None if hosts is None else lru_cache(MOST_NAMES)(lambda host: _name_of(host) in hosts)
        self._origins = frozenset(origins)
        self._needs_key = needs_key

    def check_host(self, request: HttpRequest) -> None:
        """Raise PermissionDenied for a name that is not this listener's."""
        host = request.headers.get("host")
        if self._is_served is not None and host is not None and not self._is_served(host):
            raise PermissionDenied(f"host: {host[:128]!r} is no name of this gateway; http_hosts adds names")

    def check_origin(self, request: HttpRequest) -> None:
        """Raise PermissionDenied for a request of a page of another origin."""
        if self._needs_key:
            return
        origin = request.headers.get("origin")
        if origin in self._origins:
            return
        if request.headers.get("sec-fetch-site") == "cross-site" or (origin is not None and _is_foreign(request)):
            page = (origin or "another site")[:128]
            raise PermissionDenied(f"origin: the request comes from a page of {page!r}; http_hosts adds origins")

    def preflight(self, request: HttpRequest) -> Headers:
        """Return the headers that answer a browser's question before a request; raises PermissionDenied."""
        if not self.headers(request):
            page = request.headers.get("origin", "")[:128]
            raise PermissionDenied(f"origin: http_hosts names the pages that may call from a browser, got {page!r}")
        asked = request.headers.get("access-control-request-headers", "")
        return [
            (b"access-control-allow-methods", b"GET, POST, DELETE"),
            (b"access-control-allow-headers", asked.encode("latin-1", "replace")),
            (b"access-control-allow-private-network", b"true"),
            (b"access-control-max-age", PREFLIGHT_SECONDS),
        ]

    def headers(self, request: HttpRequest) -> Headers:
        """Return the headers with which a page of one of the named origins may read the answer."""
        origin = request.headers.get("origin")
        if origin is None or origin not in self._origins:
            return []
        return [
            (b"access-control-allow-origin", origin.encode()),
            (b"access-control-expose-headers", b"*"),
            (b"vary", b"origin"),
        ]


def _is_foreign(request: HttpRequest) -> bool:
    origin = _origin_of(request.headers["origin"])
    return origin is None or origin != _origin_of(f"{request.scheme}://{request.headers.get('host', '')}")


def _name_of(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return ""


def _origin_of(url: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port; None for what is no origin."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in PORTS or not parts.hostname:
        return None
    return parts.scheme, parts.hostname, port or PORTS[parts.scheme]
