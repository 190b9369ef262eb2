"""What is written during one turn of the event loop leaves together and in order."""

import asyncio
from typing import Any

from gateway.http.gathering_transport import GatheringTransport


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


def connected() -> tuple[Wire, GatheringTransport]:
    wire = Wire()
    return wire, GatheringTransport(wire, asyncio.get_running_loop())


async def test_writes_of_one_turn_are_one_write() -> None:
    wire, transport = connected()
    transport.write(b"head ")
    transport.write(b"first")
    await asyncio.sleep(0)
    transport.write(b"second")
    await asyncio.sleep(0)
    assert wire.events == [b"head first", b"second"]


async def test_a_close_sends_what_is_held_and_nothing_follows_it() -> None:
    wire, transport = connected()
    transport.write(b"last")
    transport.close()
    transport.write(b"late")
    await asyncio.sleep(0)
    assert wire.events == [b"last", b"<closed>"]


async def test_an_abort_sends_nothing() -> None:
    wire, transport = connected()
    transport.write(b"held")
    transport.abort()
    await asyncio.sleep(0)
    assert wire.events == [b"<aborted>"]
