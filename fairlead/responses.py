"""The responses of one call, which is repeated while it is refused and retries are allowed."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

import grpc

from fairlead.errors import Cancelled, FairleadError
from fairlead.retries import Retries
from fairlead.rpc.cancellation import reraise_cancellation
from fairlead.v1 import inference_pb2


class Responses:
    """The gateway's responses to one call, to be iterated once. A refused call is repeated if no response was received.

    `make` begins a gRPC call with a timeout in seconds; `failure` returns the error for a failed gRPC call; `timeout`
    is the limit for the call with all its retries, in seconds.
    """

    def __init__(
        self,
        make: Callable[[float | None], grpc.aio.UnaryStreamCall],
        failure: Callable[[grpc.aio.AioRpcError], FairleadError],
        retries: Retries,
        timeout: float | None,
    ) -> None:
        self._make = make
        self._failure = failure
        self._retries = retries
        self._timeout = timeout
        self._call: grpc.aio.UnaryStreamCall | None = None
        self._cancelled = asyncio.Event()

    def cancel(self) -> None:
        """Cancel the call, from any task of its loop; do nothing after its end."""
        self._cancelled.set()
        if self._call is not None:
            self._call.cancel()

    async def __aiter__(self) -> AsyncIterator[inference_pb2.GenerateResponse]:
        """Yield the responses; raise the FairleadError of a call that does not complete, Cancelled after `cancel`."""
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        retried, received = 0, False
        try:
            while not self._cancelled.is_set():
                try:
                    self._call = self._make(_left(deadline))
                    async for response in self._call:
                        received = True
                        yield response
                    return
                except grpc.aio.AioRpcError as error:
                    reraise_cancellation()
                    failure = self._failure(error)
                    wait = None if received else self._retries.wait(failure, retried, _left(deadline))
                    if wait is None:
                        raise failure from error
                await self._pause(wait)
                retried += 1
        except asyncio.CancelledError:
            reraise_cancellation()
        finally:
            self.cancel()
        raise Cancelled("the stream was left before its end, or the client closed")

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._cancelled.wait()


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else deadline - time.monotonic()
