"""An answer with an error that no application writes."""

from typing import NamedTuple

from fairlead.errors import FairleadError
from gateway.http.asgi import Headers
from gateway.http.dialect import dialect_of
from gateway.http.errors import error_headers


class HttpRefusal(NamedTuple):
    """Status, headers and body of a whole answer."""

    status: int
    headers: Headers
    body: bytes


def refusal(error: FairleadError, path: str) -> HttpRefusal:
    """Return `error` as the API at `path` tells it."""
    dialect = dialect_of(path)
    body = dialect.error_body(error, "")
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *error_headers(error)]
    return HttpRefusal(dialect.status(error), headers, body)
