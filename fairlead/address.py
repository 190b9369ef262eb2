"""Parsing of a gateway's address as applications write it."""

import ipaddress
import re
from urllib.parse import urlsplit

from fairlead.errors import InvalidRequest
from fairlead.rpc.channel import TLS_SCHEME

DEFAULT_PORT = 7000
EXPECTED = "expected host, host:port, http://host:port, or https://host:port for TLS"
_HOST_NAME = re.compile(r"[\w.-]+")


def gateway_target(address: str) -> str:
    """Return `address` in the form for `open_channel`: host:port, with https:// before it for TLS.

    The port defaults to DEFAULT_PORT. An IPv6 address must be in brackets. Raise InvalidRequest for a bad address.
    """
    scheme, _, rest = address.rpartition("://")
    try:
        parts = urlsplit(f"//{rest}")
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise _problem(address) from error
    is_bare = parts.path in ("", "/") and not (parts.query or parts.fragment or parts.username or parts.password)
    if scheme not in ("", "http", "https") or not is_bare or not _is_host(host):
        raise _problem(address)
    name = f"[{host}]" if ":" in host else host
    tls = TLS_SCHEME if scheme == "https" else ""
    return f"{tls}{name}:{DEFAULT_PORT if port is None else port}"


def _is_host(host: str) -> bool:
    if ":" not in host:
        return _HOST_NAME.fullmatch(host) is not None
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def _problem(address: str) -> InvalidRequest:
    return InvalidRequest(f"{EXPECTED}; got {address!r}", "address")
