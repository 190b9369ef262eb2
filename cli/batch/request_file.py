"""The requests of a batch, one on each line, in OpenAI's batch format."""

import json
import reprlib
import stat
from codecs import BOM_UTF8
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Never

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
        for _, request in self._numbered():
            yield request

    def check(self) -> int:
        """Return the number of requests; raise InvalidRequest unless each is well formed and has an id of its own."""
        if not stat.S_ISREG(self._path.stat().st_mode):
            raise InvalidRequest(f"{self._path}: must be a regular file, which can be read twice")
        seen: set[bytes] = set()
        for count, (number, request) in enumerate(self._numbered(), 1):
            seen.add(key(request.custom_id))
            if len(seen) < count:
                raise self._invalid(number, f"custom_id: {reprlib.repr(request.custom_id)} is given twice")
        return len(seen)

    def _numbered(self) -> Iterator[tuple[int, BatchRequest]]:
        with self._path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                text = line.removeprefix(BOM_UTF8) if number == 1 else line
                if text.strip():
                    try:
                        yield number, _parsed(text)
                    except ValueError as error:
                        raise self._invalid(number, str(error)) from error

    def _invalid(self, number: int, reason: str) -> InvalidRequest:
        return InvalidRequest(f"{self._path}, line {number}: {reason}")


def _parsed(line: bytes) -> BatchRequest:
    """Return the request that `line` holds; raise ValueError with the reason if it holds none."""
    try:
        fields = json.loads(line.decode(), parse_constant=_refuse)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error}") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from error
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error
    if not isinstance(fields, dict):
        raise ValueError(f"expected a JSON object, got {reprlib.repr(fields)}")
    custom_id, method, url, body = (fields.get(name) for name in FIELDS)
    if not isinstance(custom_id, str) or not custom_id:
        raise ValueError(f"custom_id: expected a text that is not empty, got {reprlib.repr(custom_id)}")
    if method != "POST":
        raise ValueError(f"method: expected POST, got {reprlib.repr(method)}")
    if url not in URLS:
        raise ValueError(f"url: expected one of {', '.join(URLS)}, got {reprlib.repr(url)}")
    if not isinstance(body, dict):
        raise ValueError(f"body: expected a JSON object, got {reprlib.repr(body)}")
    if stream := body.get("stream"):
        raise ValueError(f"body.stream: the answers of a batch are whole, got {reprlib.repr(stream)}")
    return BatchRequest(custom_id, url, body)


def _refuse(constant: str) -> Never:
    raise ValueError(f"not JSON: {constant}")
