"""Calls of completions through Envoy, as an OpenAI client makes them."""

import http.client
import json
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from tests.services import DEADLINE


class Call:
    """One streamed completion; its answer has begun when it exists."""

    fields: ClassVar[Mapping[str, Any]] = {}  # more of the request's body

    def __init__(self, port: int, prompt: list[int], max_tokens: int = 4, **headers: str) -> None:
        self._began = time.monotonic()
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
        given = {"prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True, "stream": True, **self.fields}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request("POST", "/v1/completions", json.dumps(given), named)
        self.answer = self._connection.getresponse()
        self.status = self.answer.status
        self.served_by = int(self.answer.headers.get("x-served-by", "0"))

    def chunk(self) -> dict[str, Any] | None:
        """The next token's chunk; None after the last."""
        while line := self.answer.readline():
            if line.startswith(b"data: {"):
                found: dict[str, Any] = json.loads(line.removeprefix(b"data: "))
                return found
        return None

    def rest(self) -> int:
        """Read to the end; the number of chunks that came."""
        chunks = 0
        while self.chunk() is not None:
            chunks += 1
        self.close()
        return chunks

    def seconds_to_first_token(self) -> float:
        """Time from the call to its first token; the rest is read, too."""
        assert self.chunk() is not None
        seconds = time.monotonic() - self._began
        self.rest()
        return seconds

    def error(self) -> tuple[str, str]:
        """The reason in the header of a refusal, and its message."""
        body = json.loads(self.answer.read())
        self.close()
        return self.answer.headers["x-llm-d-request-dropped-reason"], body["error"]["message"]

    def close(self) -> None:
        """Close the connection, whatever has come."""
        self.answer.close()
        self._connection.close()


class CallForUsage(Call):
    """A completion whose last event says how many tokens the output has."""

    fields: ClassVar[Mapping[str, Any]] = {"stream_options": {"include_usage": True}}
