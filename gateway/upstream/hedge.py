"""Hedged calls: a second peer is called if the first one is slow (Dean and Barroso, The Tail at Scale, 2013)."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from fairlead.errors import Unavailable

T = TypeVar("T")


async def hedged(calls: Sequence[Callable[[], Coroutine[Any, Any, T]]], patience: float) -> T:
    """Return the first result of `calls`, of which at most two run at a time.

    The next call begins when one raises Unavailable, or when the only running call has taken `patience` seconds. Raise
    the first exception other than Unavailable, or the last Unavailable if all calls raise it.
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
