"""Viewers of the page without a browser: each holds a stream of events and counts its bytes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from gateway.page.access import page_key


class Viewer:
    """One open stream of events; `bytes` and `events` count what came since the first whole state."""

    def __init__(self) -> None:
        self.bytes = 0
        self.events = 0

    async def watch(self, port: int, cookie: str) -> None:
        """Read events until cancelled."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
        with contextlib.closing(writer):
            writer.write(f"GET /events HTTP/1.1\r\nhost: page\r\ncookie: {cookie}\r\n\r\n".encode())
            while line := await reader.readline():
                if line.startswith(b"data: {"):
                    self.events += 1
                    self.bytes += len(line)


async def log_in(port: int, secret: str) -> str:
    """Return the cookie of a new session."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.closing(writer):
        key = page_key(secret).encode()
        head = b"POST /login HTTP/1.1\r\nhost: page\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        writer.write(head % len(key) + key)
        answer = (await reader.read()).decode()
    return answer.partition("set-cookie: ")[2].partition(";")[0]


@contextlib.asynccontextmanager
async def viewers(number: int, port: int, cookie: str) -> AsyncIterator[list[Viewer]]:
    """Keep the page open so many times."""
    made = [Viewer() for _ in range(number)]
    tasks = [asyncio.create_task(viewer.watch(port, cookie)) for viewer in made]
    try:
        yield made
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
