"""A connection's network without a network."""

import asyncio
from typing import Any


class Wire(asyncio.Transport):
    """A transport that keeps what it is given, one entry per write and per end."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[bytes] = []

    def write(self, data: Any) -> None:
        assert not self.is_closing(), "a write after the end"
        self.events.append(bytes(data))

    def close(self) -> None:
        self.events.append(b"<closed>")

    def abort(self) -> None:
        self.events.append(b"<aborted>")

    def is_closing(self) -> bool:
        return any(event in (b"<closed>", b"<aborted>") for event in self.events)

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass
