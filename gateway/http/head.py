"""The head of a request: request line and headers, as the parser has read them."""

import urllib.parse
from collections.abc import Sequence

import httptools
from uvicorn._types import HTTPScope

from fairlead.errors import InvalidRequest
from gateway.http.cycle import HTTP_1_0
from gateway.http.errors import HeadTooLarge

MAX_HEAD = 16 * 1024  # bytes: request line and headers, or trailers, or the head of a chunk
MAX_FIELDS = 128  # headers: short ones take many times their bytes
VERSIONS = (HTTP_1_0, "1.1")
Fields = Sequence[tuple[bytes, bytes]]


def check_head(url: bytes, version: str, fields: Fields) -> None:
    """Raise InvalidRequest for a head that proxies and servers could read differently, and HeadTooLarge."""
    size, hosts, coding = len(url), 0, b"chunked"
    for name, value in fields:
        size += len(name) + len(value)
        hosts += name == b"host"
        if name == b"transfer-encoding" and value.lower() != b"chunked":
            coding = value
    check_size(size)
    if version not in VERSIONS:
        raise InvalidRequest(f"the version of HTTP must be 1.1 or 1.0, got {version}")
    if hosts > 1 or (hosts == 0 and version != HTTP_1_0):
        raise InvalidRequest(f"a request has one Host header, got {hosts}")
    if coding != b"chunked":
        raise InvalidRequest(f"transfer-encoding: must be chunked, got {coding[:32].decode('latin-1')!r}")


def check_size(size: int) -> None:
    """Raise HeadTooLarge for more bytes than MAX_HEAD."""
    if size > MAX_HEAD:
        raise HeadTooLarge(f"headers have at most {MAX_HEAD} bytes, got {size}")


def check_number(fields: Fields) -> None:
    """Raise HeadTooLarge for more fields than MAX_FIELDS."""
    if len(fields) > MAX_FIELDS:
        raise HeadTooLarge(f"a request has at most {MAX_FIELDS} headers")


def complete_scope(scope: HTTPScope, method: bytes, url: bytes, version: str) -> None:
    """Set what the request line says; raises HttpParserInvalidURLError and UnicodeDecodeError."""
    parsed = httptools.parse_url(url)
    raw_path = parsed.path or b"/"
    scope["method"] = method.decode()
    scope["http_version"] = version
    scope["path"] = urllib.parse.unquote(raw_path.decode("ascii"))
    scope["raw_path"] = raw_path
    scope["query_string"] = parsed.query or b""


def without_upgrade(method: bytes, url: bytes, version: str, fields: Fields) -> bytes:
    """Return a head as it would be without its Upgrade, which may be ignored (RFC 9110, 7.8)."""
    line = b"%b %b HTTP/%b\r\n" % (method, url, version.encode())
    return b"".join([line, *(b"%b: %b\r\n" % field for field in fields if field[0] != b"upgrade"), b"\r\n"])
