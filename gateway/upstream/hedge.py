"""Hedged calls on the event loop; `gateway.core.hedge` decides which peers are called."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from fairlead.errors import Unavailable
from gateway.core.hedge import Hedge

P = TypeVar("P")
T = TypeVar("T")


async def hedged(peers: Sequence[P], ask: Callable[[P], Coroutine[Any, Any, T]], patience: float) -> T:
    """Return the first result of `ask` for one of `peers`, in their order; at most two calls run at a time.

    The next call begins when one raises Unavailable, or when the only running call has taken `patience` seconds. Raise
    the first exception other than Unavailable, or the last Unavailable if all calls raise it.
    """
    failure = Unavailable("there is no worker to ask")
    clock, hedge, running = asyncio.get_running_loop().time, Hedge(len(peers), patience), list[asyncio.Task[T]]()
    peer = hedge.begin(clock())
    try:
        while not hedge.exhausted:
            if peer is not None:
                running.append(asyncio.create_task(ask(peers[peer])))
            due = hedge.next_deadline()
            timeout = None if due is None else max(0.0, due - clock())
            done, _ = await asyncio.wait(running, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            peer = None if done else hedge.tick(clock())
            for task in [task for task in running if task in done][:1]:
                running.remove(task)
                try:
                    return task.result()
                except Unavailable as error:
                    failure, peer = error, hedge.failed(clock())
        raise failure
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
