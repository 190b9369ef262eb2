"""What all viewers of the page see: one snapshot per period, and one patch that every viewer is sent.

Nothing is collected while there is no viewer. A viewer costs the network a patch per period, whatever the number of
viewers and of clients: snapshot, patch and JSON are made once.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import msgspec

from gateway.core.merge_patch import Document, merge_patch
from gateway.http.sse import named_event

log = logging.getLogger(__name__)
PERIOD_SECONDS = 1.0
LINGER_SECONDS = 60.0  # without viewers, for which the history is kept
MOST_BEHIND = 10  # events that a viewer may not have taken yet; the page connects again after it was dropped
MOST_VIEWERS = 100


class Viewer:
    """One open page: the events that it has not taken yet."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._has_ended = False

    async def events(self) -> AsyncIterator[bytes]:
        """Yield events until the viewer is dropped or the gateway stops."""
        while (event := await self._events.get()) is not None:
            yield event

    def send(self, event: bytes) -> bool:
        """Add an event; return False, and end the viewer, if it has not taken the earlier ones."""
        if self._has_ended or self._events.qsize() >= MOST_BEHIND:
            self.end()
            return False
        self._events.put_nowait(event)
        return True

    def end(self) -> None:
        """Let `events` end after what has been added; nothing is added from then on."""
        self._has_ended = True
        self._events.put_nowait(None)


class NoPlace(Exception):
    """No further viewer can be served; the message says why."""


class Collector:
    """The snapshot of the cluster, taken while there are viewers.

    `look` returns the state now, `past` what only a new viewer needs. A snapshot is taken every `period` seconds, and
    for `linger` seconds after the last viewer has gone.
    """

    def __init__(
        self,
        look: Callable[[], Awaitable[Document]],
        past: Callable[[], Document],
        period: float = PERIOD_SECONDS,
        linger: float = LINGER_SECONDS,
    ) -> None:
        self._look = look
        self._past = past
        self._period = period
        self._linger = linger
        self._state: Document = {}
        self._viewers: set[Viewer] = set()
        self._is_closed = False
        self._arrived = asyncio.Event()

    async def run(self, rest: Callable[[], Awaitable[None]]) -> None:
        """Collect until cancelled; `rest` is called at the end, and when there was no viewer for `linger` seconds."""
        try:
            while True:
                await self._arrived.wait()
                try:
                    await self._collect()
                except Exception:  # ours; the page is not worth the calls that the gateway serves
                    log.exception("the page cannot be collected")
                    await asyncio.sleep(self._period)
                else:
                    await rest()
        finally:
            await rest()

    @contextlib.contextmanager
    def viewing(self) -> Iterator[Viewer]:
        """Return a new viewer, which receives the whole state and from then on patches; raise NoPlace."""
        if len(self._viewers) >= MOST_VIEWERS:
            raise NoPlace(f"at most {MOST_VIEWERS} pages can be open")
        if self._is_closed:
            raise NoPlace("the gateway stops")
        viewer = Viewer()
        if self._state:
            viewer.send(self._whole())
        self._viewers.add(viewer)
        self._arrived.set()
        try:
            yield viewer
        finally:
            self._viewers.discard(viewer)

    def close(self) -> None:
        """End all viewers and refuse further ones, so that no connection delays the end of the process."""
        self._is_closed = True
        for viewer in self._viewers:
            viewer.end()
        self._viewers.clear()

    async def _collect(self) -> None:
        seen = time.monotonic()
        while self._viewers or time.monotonic() - seen < self._linger:
            began = time.monotonic()
            state = await self._look()
            was_empty, patch, self._state = not self._state, merge_patch(self._state, state), state
            event = self._whole() if was_empty else named_event(b"patch", msgspec.json.encode(patch))
            self._viewers = {viewer for viewer in self._viewers if viewer.send(event)}
            if self._viewers:
                seen = time.monotonic()
            await asyncio.sleep(max(0.0, began + self._period - time.monotonic()))
        self._state = {}
        self._arrived.clear()

    def _whole(self) -> bytes:
        return named_event(b"state", msgspec.json.encode({**self._state, "past": self._past()}))
