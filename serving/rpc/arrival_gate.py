"""A gate before the handlers of a gRPC server, so that the server stops while no call is on its way in."""

import asyncio
from collections.abc import Awaitable, Callable

import grpc

QUIET_SECONDS = 0.01  # without a new call: then gRPC has handed over all that it had received
MOST_SECONDS = 0.25  # new calls may come for ever

Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler | None]]


class ArrivalGate(grpc.aio.ServerInterceptor):
    """Lets calls to their handlers, and counts them.

    gRPC ends calls with CANCELLED that it has received and not handed over when its server stops (grpc/grpc#41785). It
    hands them over one by one, so they queue while handlers run. A server therefore closes the gate, stops once the
    queue is empty, and opens the gate: the calls that waited at it are served like those that were there before.
    """

    def __init__(self) -> None:
        self._arrived = 0
        self._open = asyncio.Event()
        self._open.set()

    async def intercept_service(
        self, continuation: Continuation, details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler | None:
        """See grpc.aio.ServerInterceptor."""
        self._arrived += 1
        await self._open.wait()
        return await continuation(details)

    async def close(self) -> None:
        """Hold new calls; return when for QUIET_SECONDS none has come, or after MOST_SECONDS."""
        self._open.clear()
        for _ in range(round(MOST_SECONDS / QUIET_SECONDS)):
            before = self._arrived
            await asyncio.sleep(QUIET_SECONDS)
            if self._arrived == before:
                return

    def open(self) -> None:
        """Let the held calls and all further ones pass."""
        self._open.set()
