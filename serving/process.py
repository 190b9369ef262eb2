"""Start and end of every service process: uvloop, a clean exit on SIGTERM."""

import asyncio
import gc
import logging
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import uvloop

from serving.config import ConfigError
from serving.logs import configure_logging

STARTING = "starting"
# New objects that start the garbage collector. Reference counts free nearly all that a request needs; with Python's 700
# the collector took about 3 % of a gateway's CPU time.
YOUNG_OBJECTS = 10_000
DESCRIPTORS = 65_536
MOST_DIGITS = 640  # of an integer that is read: the time it takes grows with their square. Python allows no lower limit
log = logging.getLogger(__name__)
Serving = Callable[[asyncio.Event], Awaitable[None]]


def raise_descriptor_limit() -> None:
    """Allow this process as many open files as it may allow itself, up to DESCRIPTORS: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def log_step(step: str) -> None:
    """Log the next step of the process's start before it begins; `fairlead up` shows it."""
    log.info(STARTING, extra={"step": step})


def run(prepare: Callable[..., Serving], argv: Sequence[str], **constants: Any) -> int:
    """Prepare a service with arguments and run it until it returns; SIGTERM and SIGINT set the event passed to it.

    `constants` are those of serving.config.load.

    Return the exit status: 0, or 2 after one line on standard error if preparing or serving raised ConfigError.
    """

    raise_descriptor_limit()
    configure_logging("info")  # for what is wrong with the configuration, which says the level
    sys.set_int_max_str_digits(MOST_DIGITS)

    async def main(serve: Serving) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        # Objects made at start live as long as the process: frozen, they do not lengthen the collector's pauses.
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS)
        await serve(stop)

    try:
        uvloop.run(main(prepare(argv, **constants)))
    except ConfigError as error:
        print(f"configuration: {error}", file=sys.stderr)
        return 2
    return 0
