"""A viewer of the page without a browser: what a browser would send and be sent."""

import http.client
import json
from collections.abc import Iterator
from typing import Any

from tests.services import SECRET
from tests.unit.gateway.http.http_client import Answer, HttpClient
from tests.unit.gateway.merge_patches import apply


class Viewer(HttpClient):
    """A client of the page's port, with the cookie that it was given."""

    cookie = ""

    def log_in(self, key: str = SECRET) -> Answer:
        """Show a key, and keep the cookie."""
        answer = self.post("/login", key.encode())
        self.cookie = answer.headers.get("set-cookie", "").partition(";")[0]
        return answer

    def states(self) -> Iterator[dict[str, Any]]:
        """The state after each event, for as long as the stream lasts."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", "/events", headers={"cookie": self.cookie})
            response = connection.getresponse()
            assert response.status == 200, response.read()
            state: dict[str, Any] = {}
            name = ""
            while line := response.readline():
                field, _, value = line.decode().rstrip("\n").partition(": ")
                if field == "event":
                    name = value
                elif field == "data":
                    state = json.loads(value) if name == "state" else apply(state, json.loads(value))
                    yield state
        finally:
            connection.close()
