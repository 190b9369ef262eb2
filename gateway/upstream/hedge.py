"""Calls that several peers could answer: a slow one is not waited for (Dean and Barroso, The Tail at Scale, 2013)."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from fairlead.errors import Unavailable

T = TypeVar("T")


async def hedged(calls: Sequence[Callable[[], Coroutine[Any, Any, T]]], patience: float) -> T:
    """The first result, of at most two of `calls` at a time.

    The next one begins when one raises Unavailable, and when the only one has taken `patience` seconds. Raises what a
    call raises beside Unavailable, or the last Unavailable.
    """
    failure = Unavailable("there is no worker to ask")
    left, running = list(calls), list[asyncio.Task[T]]()
    try:
        while left or running:
            if left and len(running) < 2:
                running.append(asyncio.create_task(left.pop(0)()))
            timeout = patience if left and len(running) < 2 else None
            await asyncio.wait(running, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in running if task.done()]:
                running.remove(task)
                try:
                    return task.result()
                except Unavailable as error:
                    failure = error
        raise failure
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
