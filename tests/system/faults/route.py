"""A network path that a test can make slow, or cut, as when a link fails: connections stand, and nothing passes."""

import asyncio
import threading
from types import TracebackType
from typing import Self


class Route:
    """Forwards TCP connections to `target` until `cut`; then they stand open, and nothing passes either way.

    A connection's first byte passes after `connecting` seconds: what TLS with a distant peer, or a busy one, takes.
    """

    def __init__(self, target: str, connecting: float = 0.0) -> None:
        self._connecting = connecting
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._open = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.address = ""

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Nothing passes from now on."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def heal(self) -> None:
        """What was held back passes, and what comes."""
        self._loop.call_soon_threadsafe(self._open.set)

    async def _listen(self) -> None:
        self._open.set()
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(self._connecting)
        there_reader, there_writer = await asyncio.open_connection(self._host, self._port)
        for source, sink in ((reader, there_writer), (there_reader, writer)):
            self._tasks.append(self._loop.create_task(self._pump(source, sink)))

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(1 << 16):
                await self._open.wait()
                sink.write(data)
                await sink.drain()
        except ConnectionError:
            pass
        finally:
            sink.close()

    async def _end(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
