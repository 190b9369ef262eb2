"""A plain HTTP client: what comes back is as it came."""

import http.client
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
COUNT = f"{MESSAGES}/count_tokens"
INPUT_TOKENS = f"{RESPONSES}/input_tokens"
TOKENIZE = "/tokenize"
DETOKENIZE = "/detokenize"
MODELS = "/v1/models"
HELLO = [{"role": "user", "content": "hello"}]
SECONDS = 60


@dataclass(frozen=True)
class Answer:
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        """The body's error."""
        assert set(self.json) == {"error"}
        assert set(self.json["error"]) == {"message", "type", "param", "code"}
        return self.json["error"]

    @property
    def events(self) -> list[Any]:
        """The events of a stream, parsed, comments and the last one left out; each must have the form of an event."""
        assert self.headers["content-type"] == "text/event-stream; charset=utf-8"
        *events, end = self.body.decode().split("\n\n")
        assert end == ""
        data = [event.removeprefix("data: ") for event in events if not event.startswith(":")]
        assert all("\n" not in event for event in data)
        return [json.loads(event) for event in data if event != "[DONE]"]

    @property
    def named_events(self) -> list[Any]:
        """The events of a stream, parsed; each must be named as its data says."""
        assert self.headers["content-type"] == "text/event-stream; charset=utf-8"
        *events, end = self.body.decode().split("\n\n")
        assert end == ""
        parsed = []
        for event in events:
            name, data = event.split("\n")
            parsed.append(json.loads(data.removeprefix("data: ")))
            assert name == f"event: {parsed[-1]['type']}"
        return parsed

    @property
    def is_done(self) -> bool:
        """Whether a stream ended as it should."""
        return self.body.endswith(b"\n\ndata: [DONE]\n\n")


class HttpClient:
    """Calls the gateway at `port`, each call over a connection of its own."""

    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, path: str, **headers: str) -> Answer:
        """GET."""
        return self.request("GET", path, b"", _dashed(headers))

    def post(self, path: str, body: object, **headers: str) -> Answer:
        """POST, of JSON or of bytes as they are; of a header's name `_` stands for `-`."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.request("POST", path, data, _dashed(headers))

    def request(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Any request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            return Answer(
                response.status, {name.lower(): text for name, text in response.getheaders()}, response.read()
            )
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        """A connection, for what no client would send."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)

    def begin(self, path: str, body: object, **headers: str) -> socket.socket:
        """Send a POST, and read nothing of its answer yet."""
        data = json.dumps(body).encode()
        fields = {"host": "localhost", "content-length": str(len(data)), **headers}
        lines = [f"POST {path} HTTP/1.1", *(f"{name}: {text}" for name, text in _dashed(fields).items())]
        connection = self.connect()
        connection.sendall("".join(f"{line}\r\n" for line in [*lines, ""]).encode() + data)
        return connection

    def chat(self, **fields: object) -> Answer:
        """A chat completion of one short message, unless `fields` say otherwise."""
        return self.post(CHAT, {"messages": HELLO, "max_tokens": 4, **fields})

    def complete(self, **fields: object) -> Answer:
        """A completion of a short prompt, unless `fields` say otherwise."""
        return self.post(TEXT, {"prompt": "hello", "max_tokens": 4, **fields})


def by(key: str, user: str = "") -> dict[str, str]:
    """Return the headers of a caller with this key, who names a user or none."""
    return {"authorization": f"Bearer {key}", **({"x-fairlead-user": user} if user else {})}


def _dashed(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): text for name, text in headers.items()}
