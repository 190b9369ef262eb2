"""A proxy that keeps what programs send to the gateway, for the recorded bodies."""

import http.client
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

IGNORED = "x-fairlead-ignored"
HOP_BY_HOP = {"connection", "transfer-encoding", "keep-alive", "content-length"}


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request, and the status of its answer."""

    path: str
    headers: dict[str, str]  # by lowercase name
    body: bytes
    status: int
    ignored: str  # what the answer says is ignored


class Recorder:
    """Passes requests on to the gateway at `port`, and lists them."""

    def __init__(self, port: int) -> None:
        self.exchanges: list[Exchange] = []
        exchanges = self.exchanges

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                upstream = http.client.HTTPConnection("127.0.0.1", port)
                headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
                upstream.request(self.command, self.path, body, headers)
                answer = upstream.getresponse()
                named = {name.lower(): value for name, value in self.headers.items()}
                exchanges.append(Exchange(self.path, named, body, answer.status, answer.headers.get(IGNORED, "")))
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in HOP_BY_HOP:
                        self.send_header(name, value)
                self.send_header("connection", "close")
                self.end_headers()
                while piece := answer.read1(65536):
                    self.wfile.write(piece)
                    self.wfile.flush()
                upstream.close()
                self.close_connection = True

            do_GET = do_POST

            def log_request(self, *values: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
