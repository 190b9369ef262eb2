"""Turns of large messages: one at a time, in a fair order, and no more than half of the loop's time."""

import asyncio
from contextlib import suppress

from serving.rpc.message_body_limiter import LARGE, BodyTurns

SECONDS = 0.02  # that each message keeps the loop


class Reader:
    """Makes messages into objects, and notes whose they were, when it began and when it ended."""

    def __init__(self) -> None:
        self.turns = BodyTurns()
        self.read: list[tuple[str, float, float]] = []

    async def message(self, client: str, size: int = LARGE + 1) -> None:
        await self.turns.turn(client, size)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while loop.time() < begun + SECONDS:
            pass
        self.read.append((client, begun, loop.time()))

    @property
    def order(self) -> str:
        return "".join(client for client, _, _ in self.read)


def test_clients_take_turns_by_bytes_and_leave_the_loop_to_others_for_as_long() -> None:
    async def run() -> Reader:
        reader = Reader()
        await asyncio.gather(*(reader.message(client) for client in "aaab"), reader.message("c", 4 * LARGE))
        return reader

    reader = asyncio.run(run())
    assert reader.order == "abaac"
    for (_, begun, ended), (_, next_begun, _) in zip(reader.read, reader.read[1:], strict=False):
        assert next_begun - ended >= ended - begun


def test_a_small_message_waits_for_nobody() -> None:
    async def run() -> Reader:
        reader = Reader()
        async with asyncio.TaskGroup() as group:
            for client in "aab":
                group.create_task(reader.message(client, LARGE if client == "b" else LARGE + 1))
        return reader

    assert asyncio.run(run()).order in ("aba", "baa")


def test_who_leaves_keeps_nobody_waiting() -> None:
    async def run() -> Reader:
        reader = Reader()
        tasks = [asyncio.create_task(reader.message(client)) for client in "abc"]
        await asyncio.sleep(0)  # all have begun: the first has had its turn, the others wait
        tasks[1].cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
        return reader

    assert asyncio.run(run()).order == "ac"
