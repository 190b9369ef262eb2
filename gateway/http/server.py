"""Where HTTP callers connect."""

import asyncio
import logging
import resource
import ssl
from collections.abc import Awaitable, Callable
from functools import partial

from uvicorn.config import Config
from uvicorn.server import ServerState

from fairlead.errors import Unavailable
from gateway.core.connection_table import ConnectionTable
from gateway.http.asgi import Receive, Scope, Send
from gateway.http.connection import HttpConnection
from gateway.http.framing import MAX_HEAD
from gateway.http.tls_handshake import MOST_HANDSHAKES, TlsHandshake
from serving.config import ConfigError
from serving.rpc.address import listening_hosts

Application = Callable[[Scope, Receive, Send], Awaitable[None]]
KEEP_ALIVE_SECONDS = 75  # of an idle connection: longer than proxies keep theirs
FAREWELL_SECONDS = 1.0
BACKLOG = 2048
MAX_CONNECTIONS = 8192
MAX_TLS_CONNECTIONS = 4096  # each of which takes 50 kB more
MAX_UNREAD = 32 * 2**20  # bytes of heads and bodies that have been received and not been read yet


class BufferedConnection(asyncio.BufferedProtocol):
    """Has `connection` read through `buffer`, which all connections share: what is read is taken out at once.

    An event loop would hand over up to 256 KiB at a time, of thousands of callers that have shown no key. It is not the
    connection itself, because uvloop reads through no buffer for a class that is an asyncio.Protocol, as uvicorn's are.
    """

    def __init__(self, connection: HttpConnection, buffer: memoryview) -> None:
        self._connection = connection
        self._buffer = buffer

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.BaseProtocol."""
        self._connection.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        self._connection.connection_lost(exc)

    def eof_received(self) -> bool:
        """See asyncio.BufferedProtocol."""
        return self._connection.eof_received()

    def pause_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """See asyncio.BaseProtocol."""
        self._connection.resume_writing()

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio.BufferedProtocol."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
        self._connection.data_received(bytes(self._buffer[:nbytes]))


class HttpServer:
    """Serves `application` on the address `listen`.

    A request's head may take `seconds` to arrive; a caller that reads nothing for `reader_seconds` is disconnected.
    `option` is the name of the option that holds the address.
    """

    def __init__(
        self,
        listen: str,
        application: Application,
        context: ssl.SSLContext | None,
        *,
        seconds: float,
        reader_seconds: float,
        option: str = "http_listen",
    ) -> None:
        self._option = option
        self.port: int | None = None  # once started
        self._listen = listen
        self._context = context
        self._seconds = seconds
        self._reader_seconds = reader_seconds
        self._state = ServerState()
        self._table: ConnectionTable[HttpConnection] = ConnectionTable(
            _most_connections(MAX_TLS_CONNECTIONS if context else MAX_CONNECTIONS), MAX_UNREAD
        )
        self._handshakes: ConnectionTable[TlsHandshake] = ConnectionTable(MOST_HANDSHAKES, 0)
        self._buffer = memoryview(bytearray(MAX_HEAD))
        self._config = Config(
            application,
            interface="asgi3",
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )
        self._config.load()
        # Its warnings are of callers that speak no HTTP, a line each; what goes wrong here are errors.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Begin to listen; raises ConfigError where the address cannot be used."""
        port = int(self._listen.rpartition(":")[2])
        accepted: Callable[[], asyncio.BaseProtocol] = self._connection
        if self._context:
            accepted = partial(TlsHandshake, self._context, self._handshakes, self._connection)
        try:
            self._server = await asyncio.get_running_loop().create_server(
                accepted, listening_hosts(self._listen), port, backlog=BACKLOG
            )
        except (OSError, UnicodeError) as error:
            raise ConfigError(f"{self._option}: cannot listen on {self._listen}: {error}") from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self, grace: float) -> None:
        """Stop accepting at once, and let what is asked be answered for `grace` seconds.

        The calls that still run are ended by then, and their callers have FAREWELL_SECONDS to be told. The requests
        that are not answered after that are refused, with as much time.
        """
        if self._server is None:
            return
        self._server.close()
        for connection in self._connections:
            connection.drain()
        await self._all_lost(grace + FAREWELL_SECONDS)
        for connection in self._connections:
            connection.end(Unavailable("the gateway stops; repeat the request"))
        await self._all_lost(FAREWELL_SECONDS)
        for connection in self._connections:
            connection.abort()
        if left := list(self._state.tasks):
            for task in left:
                task.cancel()
            await asyncio.wait(left)

    @property
    def _connections(self) -> list[HttpConnection]:
        return [connection for connection in self._state.connections if isinstance(connection, HttpConnection)]

    async def _all_lost(self, seconds: float) -> None:
        """Return once every connection is gone, or after `seconds`."""
        if lost := [connection.lost for connection in self._connections]:
            await asyncio.wait(lost, timeout=seconds)

    def _connection(self) -> BufferedConnection:
        connection = HttpConnection(
            self._config, self._state, self._table, seconds=self._seconds, reader_seconds=self._reader_seconds
        )
        return BufferedConnection(connection, self._buffer)


def _most_connections(most: int) -> int:
    """Return how many connections there may be; half of the process's descriptors are for all else."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(most, descriptors // 2)
