"""Hedged calls on the event loop; `gateway.core.hedge` decides which peers are called."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from fairlead.errors import Unavailable
from gateway.core.hedge import Hedge

P = TypeVar("P")
T = TypeVar("T")


async def hedged(peers: Sequence[P], ask: Callable[[P], Coroutine[Any, Any, T]], patience: float, end: float) -> T:
    """Return the first result of `ask` for one of `peers`, in their order; at most two calls run at a time.

    The next call begins when one raises Unavailable, or when the only running call has taken `patience` seconds. Raise
    the first exception other than Unavailable, the last Unavailable if all calls raise it, or TimeoutError at `end`, in
    loop time.
    """
    failure = Unavailable("there is no worker to ask")
    clock, hedge, running = asyncio.get_running_loop().time, Hedge(len(peers), patience), list[asyncio.Task[T]]()
    peer = hedge.begin(clock())
    try:
        while not hedge.exhausted:
            if peer is not None:
                running.append(asyncio.create_task(ask(peers[peer])))
            due = hedge.next_deadline()
            done = await _first_done(running, end if due is None else min(due, end))
            if done is None:
                if clock() >= end:
                    raise TimeoutError
                peer = hedge.tick(clock())
                continue
            running.remove(done)
            try:
                return done.result()
            except Unavailable as error:
                failure, peer = error, hedge.failed(clock())
        raise failure
    finally:
        if running:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


async def _first_done(tasks: Sequence[asyncio.Task[T]], due: float) -> asyncio.Task[T] | None:
    """Return a task that is done as soon as there is one, or None at `due`; it costs a third of asyncio.wait."""
    loop = asyncio.get_running_loop()
    woken: asyncio.Future[None] = loop.create_future()

    def wake(_: object = None) -> None:
        if not woken.done():
            woken.set_result(None)

    timer = loop.call_at(due, wake)
    for task in tasks:
        task.add_done_callback(wake)
    try:
        await woken
    finally:
        timer.cancel()
        for task in tasks:
            task.remove_done_callback(wake)
    return next((task for task in tasks if task.done()), None)
