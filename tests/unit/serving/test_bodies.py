"""Places for messages that arrive: who waits, who is next, who gives way."""

import asyncio

import pytest

from fairlead.errors import QueueFull
from serving.rpc.concurrency_limiter import ConcurrencyLimiter
from serving.rpc.message_body_limiter import WAITING, MessageBodyLimiter

Received = asyncio.Task[bytes]


class Call:
    """As far as Bodies sees it: whose it is, and a message that arrives when the test says so."""

    def __init__(self, connection: str) -> None:
        self._connection = connection
        self.message: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.is_read = False

    def peer(self) -> str:
        return self._connection

    async def read(self) -> bytes:
        self.is_read = True
        return await self.message


async def settle() -> None:
    """Let tasks do what they can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def begin(bodies: MessageBodyLimiter, *connections: str) -> tuple[list[Call], list[Received]]:
    """A call of each connection, which have done what they can without their messages."""
    calls = [Call(connection) for connection in connections]
    tasks = [asyncio.create_task(bodies.receive(call)) for call in calls]
    await settle()
    bodies.check_invariants()
    return calls, tasks


async def test_connections_take_turns() -> None:
    bodies = MessageBodyLimiter(places=4, seconds=1000, patience=1000)
    calls, tasks = await begin(bodies, *"aaaabcdbbbe")
    assert [call.is_read for call in calls] == [True, False, False, False, True, True, True, *[False] * 4]
    order = []
    for _ in range(4):
        reading = [number for number, call in enumerate(calls) if call.is_read]
        number = next(number for number in reading if not calls[number].message.done())
        calls[number].message.set_result(b"m")
        assert await tasks[number] == b"m"
        await settle()
        bodies.check_invariants()
        order += ["aaaabcdbbbe"[n] for n, call in enumerate(calls) if call.is_read and n not in reading]
    assert order == ["a", "e", "b", "a"]
    for task in tasks:
        task.cancel()


async def test_who_waits_too_long_takes_a_place_of_whoever_has_most() -> None:
    bodies = MessageBodyLimiter(places=8, seconds=1000, patience=0.01)
    _, slow = await begin(bodies, *"aabbccd")
    patient, waiting = await begin(bodies, *"eea")
    _, refused = await asyncio.wait(slow, return_when=asyncio.FIRST_COMPLETED)
    assert refused
    with pytest.raises(QueueFull, match="did not arrive within"):
        await slow[0]
    for call in patient:
        if not call.message.done():
            call.message.set_result(b"m")
    assert await asyncio.gather(*waiting) == [b"m"] * 3
    assert not slow[6].done(), "who has one place keeps it"
    for task in slow:
        task.cancel()


async def test_a_caller_that_leaves_gives_its_place_back() -> None:
    bodies = MessageBodyLimiter(places=4, seconds=1000, patience=1000)
    calls, tasks = await begin(bodies, *"aaa")
    tasks[1].cancel()
    tasks[0].cancel()
    await asyncio.wait(tasks[:2])
    bodies.check_invariants()
    calls[2].message.set_result(b"m")
    assert await tasks[2] == b"m"


async def test_few_wait() -> None:
    bodies = MessageBodyLimiter(places=4, seconds=1000, patience=1000)
    _, tasks = await begin(bodies, *("a" * 2 * WAITING))
    refused = [task for task in tasks if task.done()]
    assert len(tasks) - len(refused) == WAITING // 2 + 1
    with pytest.raises(QueueFull, match=f"at most {WAITING}"):
        await refused[0]
    await begin(bodies, "b")
    for task in tasks:
        task.cancel()


def test_a_room_has_places_left_for_newcomers() -> None:
    room = ConcurrencyLimiter(8, "inside")
    for _ in range(4):
        room.enter("a")
    with pytest.raises(QueueFull, match="4 inside, 4 of them of this connection; at most 8"):
        room.enter("a")
    for _ in range(2):
        room.enter("b")
    room.enter("c")
    room.check_invariants()
    for source in "aaaabbc":
        room.leave(source)
    room.check_invariants()
