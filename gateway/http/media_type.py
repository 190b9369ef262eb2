"""The form of a request's body: JSON, which says that it is JSON, in UTF-8 and without compression."""

from collections.abc import Mapping

from gateway.http.errors import UnsupportedMediaType

CHARSETS = ("utf-8", "utf8", "us-ascii")


def check_media_type(headers: Mapping[str, str]) -> None:
    """Raise UnsupportedMediaType for a body in another form.

    A browser sends other types to any origin without asking it. A program that is no browser may leave out the type.
    """
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise UnsupportedMediaType(f"a body must not be compressed, got {encoding[:32]!r}", "content-encoding")
    if "content-type" not in headers and "origin" not in headers and "sec-fetch-site" not in headers:
        return
    given = headers.get("content-type", "")
    kind, *parameters = (part.strip().lower() for part in given.split(";"))
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise UnsupportedMediaType(
            f"must be application/json, got {given[:64]!r}; with curl, add -H 'content-type: application/json'",
            "content-type",
        )
    for name, _, value in (parameter.partition("=") for parameter in parameters):
        if name == "charset" and value.strip('"') not in CHARSETS:
            raise UnsupportedMediaType(f"the charset of JSON is utf-8, got {value[:32]!r}", "content-type")
