"""A wire to a Redis server that can be slow."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path


class SlowWire:
    """A Unix socket in front of a server; each answer is held back `delay` seconds."""

    def __init__(self, path: Path, target: Path) -> None:
        self.path = path
        self.delay = 0.0
        self._target = target

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        async with await asyncio.start_unix_server(self._relay, str(self.path)):
            yield

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_unix_connection(str(self._target))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._copy(reader, up_writer, slow=False))
                tasks.create_task(self._copy(up_reader, writer, slow=True))
        except* OSError:
            pass
        finally:
            writer.close()
            up_writer.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, slow: bool) -> None:
        while data := await reader.read(65536):
            if slow and self.delay:
                await asyncio.sleep(self.delay)
            writer.write(data)
            await writer.drain()
        writer.close()
