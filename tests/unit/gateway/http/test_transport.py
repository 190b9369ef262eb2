"""What is written during one turn of the event loop leaves together and in order."""

import asyncio

from gateway.http.transport import GatheringTransport
from tests.unit.gateway.http.wire import Wire


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
