"""An engine that lies: raw answers by path, some of which never end. It counts what it could send."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

Answer = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]

METRICS = """\
vllm:num_requests_running{model_name="m"} 0.0
vllm:num_requests_waiting{model_name="m"} 0.0
vllm:kv_cache_usage_perc{model_name="m"} 0.0
vllm:cache_config_info{block_size="16",num_gpu_blocks="101"} 1.0
"""


def whole(body: object, status: int = 200) -> bytes:
    """A complete answer of HTTP."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n" % (status, len(data)) + data


def events(*bodies: object) -> bytes:
    """A complete stream of events."""
    return whole(
        b"".join(b"data: " + (b if isinstance(b, bytes) else json.dumps(b).encode()) + b"\n\n" for b in bodies)
    )


def choice(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"text": "a", "token_ids": [97], "finish_reason": None, **fields}]}


HONEST: dict[str, Answer] = {
    "/health": whole(b""),
    "/version": whole({"version": "0.32.0"}),
    "/v1/models": whole({"data": [{"id": "m", "root": "/m", "parent": None, "max_model_len": 400}]}),
    "/server_info?config_format=json": whole({"detail": "Not Found"}, 404),
    "/metrics": whole(METRICS.encode()),
    "/tokenize": whole({"tokens": [104, 105]}),
    "/detokenize": whole({"prompt": "hi"}),
    "/v1/completions": events(choice(), choice(finish_reason="length")),
}


class MaliciousEngine:
    """Serves `answers` by path; endless ones are sent until the client closes the connection."""

    def __init__(self) -> None:
        self.answers = dict(HONEST)
        self._answering: set[asyncio.Task[None]] = set()
        self.asked: Counter[str] = Counter()
        self.address = ""
        self.sent = 0  # bytes of endless answers that the client, or the buffers between, took
        self.closed = asyncio.Event()  # whether a client has left an endless answer

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["MaliciousEngine"]:
        async with await asyncio.start_server(self._handle, "127.0.0.1", 0) as server:
            self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield self
            for answering in list(self._answering):
                answering.cancel()
            await asyncio.gather(*self._answering, return_exceptions=True)

    def endless(self, head: bytes, part: bytes) -> Answer:
        """`head`, and then `part` for ever."""

        async def send(writer: asyncio.StreamWriter) -> None:
            writer.write(head)
            try:
                while True:
                    writer.write(part)
                    await writer.drain()
                    self.sent += len(part)
            except OSError:
                self.closed.set()

        return send

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split()[1].decode()
            self.asked[path] += 1
            answer = self.answers[path]
            if callable(answer):
                await answer(writer)
            else:
                writer.write(answer)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._answering.discard(task)
            writer.close()
