"""A caller that reads its responses, or has stopped to."""

import asyncio
from collections.abc import Callable

LOOKS = 4  # within `patience`


class Reader:
    """Says when a caller has read nothing for `patience` seconds although all that it is to read is there.

    A write waits for the caller's flow control, and whoever writes is suspended in it: somebody else has to look.
    `complete`: whether nothing more will come; `gave_up` is called once at most.
    """

    def __init__(self, patience: float, complete: Callable[[], bool], gave_up: Callable[[], None]) -> None:
        self._patience = patience
        self._complete = complete
        self._gave_up = gave_up
        self._loop = asyncio.get_running_loop()
        self._writing_since: float | None = None
        self._timer = self._loop.call_later(patience / LOOKS, self._look)

    def writing(self) -> None:
        """A response is about to be written."""
        self._writing_since = self._loop.time()

    def written(self) -> None:
        """The caller, or what lies between, took it."""
        self._writing_since = None

    def gone(self) -> None:
        """Nobody is to be waited for any more."""
        self._timer.cancel()

    def _look(self) -> None:
        since = self._writing_since
        if since is not None and self._loop.time() - since >= self._patience and self._complete():
            self._gave_up()
        else:
            self._timer = self._loop.call_later(self._patience / LOOKS, self._look)
