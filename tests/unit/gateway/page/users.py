"""Users that keep the workers busy while a test looks."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Mapping

from fairlead import Client
from fairlead.errors import FairleadError


@contextlib.contextmanager
def asking(gateway: str, parallel: Mapping[str, int]) -> Iterator[None]:
    """Let each user have that number of calls open, each replaced when it ends, until the context ends."""
    stop = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_ask(gateway, parallel, stop)))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


async def _ask(gateway: str, parallel: Mapping[str, int], stop: threading.Event) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_user(gateway, name, number)) for name, number in parallel.items()]
        await asyncio.to_thread(stop.wait)
        for task in tasks:
            task.cancel()


async def _user(gateway: str, name: str, number: int) -> None:
    async with Client(gateway, user=name) as client, asyncio.TaskGroup() as group:
        for _ in range(number):
            group.create_task(_converse(client))


async def _converse(client: Client) -> None:
    while True:
        with contextlib.suppress(FairleadError):
            await client.generate("a question " * 8, max_tokens=16, ignore_eos=True)
