"""A Service's cluster address: each connection goes to one of the pods that are ready."""

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Sequence

# For so long each new connection says nothing, as where another zone, a busy node or a proxy is between.
CONNECT_SECONDS = 0.2


class Balancer:
    """Forwards bytes. A pod that is no longer an endpoint keeps the connections that it has, as with kube-proxy.

    `endpoints` gives the addresses to which a client, by its own address, may be connected now.
    """

    def __init__(self, address: str, port: int, target: int, endpoints: Callable[[str], Sequence[str]]) -> None:
        self._address, self._port, self._target = address, port, target
        self._endpoints = endpoints
        self._turn = itertools.count()
        self._connections: set[asyncio.Task[None]] = set()  # kept, else they may vanish

    async def start(self) -> None:
        """Listen."""
        await asyncio.start_server(self._connected, self._address, self._port)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        await asyncio.sleep(CONNECT_SECONDS)
        endpoints = self._endpoints(writer.get_extra_info("peername")[0])
        with contextlib.suppress(OSError), contextlib.closing(writer):
            if endpoints:
                chosen = endpoints[next(self._turn) % len(endpoints)]
                far_reader, far_writer = await asyncio.open_connection(chosen, self._target)
                with contextlib.closing(far_writer):
                    directions = [
                        asyncio.create_task(_copy(reader, far_writer)),
                        asyncio.create_task(_copy(far_reader, writer)),
                    ]
                    # Half-open connections are of no use to gRPC: the first end ends both.
                    await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
                    for direction in directions:
                        direction.cancel()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
