"""An event loop for applications that have none."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from fairlead.errors import Closed

P = ParamSpec("P")
T = TypeVar("T")


class Background:
    """An event loop in a separate thread, which runs the asynchronous SDK and is safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_closed = False
        self._stopped = asyncio.Event()
        begun: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()
        # At its end asyncio.run cancels the remaining tasks, so no caller waits for ever for a loop that has ended.
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(begun)), name="fairlead-client", daemon=True
        )
        self._thread.start()
        self._loop = begun.result()

    def call(self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Await `function(...)` in the loop; an interrupt in this thread cancels it. Raise Closed after `close`."""

        async def awaited() -> T:
            return await function(*args, **kwargs)

        with self._lock:
            if self._is_closed:
                raise Closed("the client is closed")
            future = asyncio.run_coroutine_threadsafe(awaited(), self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise Closed("the client was closed during the call") from None
        except BaseException:
            future.cancel()
            raise

    def post(self, function: Callable[[], None]) -> None:
        """Schedule `function` in the loop and return at once, so that it may be called while the interpreter exits."""
        with self._lock:
            if not self._is_closed:
                self._loop.call_soon_threadsafe(function)

    def close(self) -> None:
        """Cancel all tasks of the loop, end it, and wait for its thread."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    async def _serve(self, begun: "concurrent.futures.Future[asyncio.AbstractEventLoop]") -> None:
        begun.set_result(asyncio.get_running_loop())
        await self._stopped.wait()
