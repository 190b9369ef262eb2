"""Hedged calls on the event loop; `gateway.core.hedge` decides which peers are called."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from fairlead.errors import Unavailable
from gateway.core.hedge import Hedge

P = TypeVar("P")
T = TypeVar("T")


async def hedged(peers: Sequence[P], ask: Callable[[P], Awaitable[T]], patience: float, end: float) -> T:
    """Return the first result of `ask` for one of `peers`, in their order; at most two calls run at a time.

    The next call begins when one raises Unavailable, or when the only running call has taken `patience` seconds. Raise
    the first exception other than Unavailable, the last Unavailable if all calls raise it, or TimeoutError at `end`, in
    loop time.
    """
    failure = Unavailable("there is no worker to ask")
    clock, hedge, running = asyncio.get_running_loop().time, Hedge(len(peers), patience), list[asyncio.Future[T]]()
    peer = hedge.begin(clock())
    try:
        while not hedge.exhausted:
            if peer is not None:
                running.append(asyncio.ensure_future(ask(peers[peer])))
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
            for future in running:
                future.cancel()
            await asyncio.gather(*running, return_exceptions=True)


async def _first_done(futures: Sequence[asyncio.Future[T]], due: float) -> asyncio.Future[T] | None:
    """Return a future that is done as soon as there is one, or None at `due`; it costs a third of asyncio.wait."""
    loop = asyncio.get_running_loop()
    woken: asyncio.Future[None] = loop.create_future()

    def wake(_: object = None) -> None:
        if not woken.done():
            woken.set_result(None)

    timer = loop.call_at(due, wake)
    for future in futures:
        future.add_done_callback(wake)
    try:
        await woken
    finally:
        timer.cancel()
        for future in futures:
            future.remove_done_callback(wake)
    return next((future for future in futures if future.done()), None)
