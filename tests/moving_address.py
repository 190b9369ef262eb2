"""A fixed address whose server changes, as of a Kubernetes Service or a proxy in front of several Redis servers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path


class MovingAddress:
    """A TCP port. New connections reach the newest target; open ones stay with theirs."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._open: list[Connection] = []
        self.url = ""

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        async with await asyncio.start_server(self._accept, "127.0.0.1", 0) as server:
            self.url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            try:
                yield
            finally:
                for connection in self._open:
                    connection.writer.close()

    def move(self, target: Path) -> None:
        """Lead new connections to the server at the Unix socket `target`."""
        self._target = target

    def answer(self, error: bytes) -> None:
        """Answer each command on the connections that are open now with `error`."""
        for connection in self._open:
            connection.error = error

    def mute(self, containing: bytes = b"") -> int:
        """Swallow what comes on the connections that are open now, if they have sent `containing`; return how many."""
        muted = [connection for connection in self._open if containing in connection.sent]
        for connection in muted:
            connection.error = b""
        return len(muted)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(writer)
        self._open.append(connection)
        up_reader, up_writer = await asyncio.open_unix_connection(str(self._target))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(connection.commands(reader, up_writer))
                tasks.create_task(connection.answers(up_reader))
        except* OSError:
            pass
        finally:
            self._open.remove(connection)
            writer.close()
            up_writer.close()


class Connection:
    """A connection through the address; `error` is None while its server answers."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.sent = b""
        self.error: bytes | None = None

    async def commands(self, reader: asyncio.StreamReader, up: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            self.sent += data
            if self.error is None:
                up.write(data)
                await up.drain()
            elif self.error:
                self.writer.write(b"-%s\r\n" % self.error * (b"\r\n" + data).count(b"\r\n*"))
        up.close()

    async def answers(self, up: asyncio.StreamReader) -> None:
        while data := await up.read(65536):
            if self.error is None:
                self.writer.write(data)
                await self.writer.drain()
        if self.error is None:
            self.writer.close()
