"""The requests of a batch, one on each line, in OpenAI's batch format."""

import json
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from fairlead.errors import InvalidRequest

URLS = ("/v1/chat/completions", "/v1/completions", "/v1/responses")
FIELDS = ("custom_id", "method", "url", "body")


class BatchRequest(NamedTuple):
    """One line of a batch."""

    custom_id: str
    url: str
    body: dict[str, Any]


def key(custom_id: str) -> bytes:
    """Return what stands for an id in memory, however long it is."""
    return blake2b(custom_id.encode(errors="surrogatepass"), digest_size=16).digest()


class RequestFile:
    """A file of requests, of which one line at a time is in memory."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[BatchRequest]:
        """Iterate over the requests; raise InvalidRequest, which names the line, for one that is none."""
        with self._path.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                if not line.isspace():
                    try:
                        yield _parsed(line)
                    except ValueError as error:
                        raise InvalidRequest(f"{self._path}, line {number}: {error}") from error

    def check(self) -> int:
        """Return the number of requests; raise InvalidRequest unless each is well formed and has an id of its own."""
        seen: set[bytes] = set()
        for number, request in enumerate(self, 1):
            seen.add(key(request.custom_id))
            if len(seen) < number:
                raise InvalidRequest(f"{self._path}: custom_id {request.custom_id!r} is given twice")
        return len(seen)


def _parsed(line: str) -> BatchRequest:
    """Return the request that `line` holds; raise ValueError with the reason if it holds none."""
    try:
        fields = json.loads(line)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error
    if not isinstance(fields, dict):
        raise ValueError("expected a JSON object")
    custom_id, method, url, body = (fields.get(name) for name in FIELDS)
    if not isinstance(custom_id, str) or not custom_id:
        raise ValueError("custom_id: expected a text that is not empty")
    if method != "POST":
        raise ValueError(f"method: expected POST, got {method!r}")
    if url not in URLS:
        raise ValueError(f"url: expected one of {', '.join(URLS)}, got {url!r}")
    if not isinstance(body, dict):
        raise ValueError("body: expected a JSON object")
    if body.get("stream"):
        raise ValueError("body.stream: the answers of a batch are whole")
    return BatchRequest(custom_id, url, body)
