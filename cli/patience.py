"""Waiting for an answer, with a message on standard error that says what the command waits for."""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from cli import endpoint
from cli.progress import Progress
from cli.service_log import ServiceLog
from fairlead import Retries
from fairlead.errors import FairleadError, Unavailable

T = TypeVar("T")
POLL_SECONDS = 0.2
NO_RETRIES = Retries(attempts=0)  # for clients whose calls are retried here, with a message to the user


def patiently(address: str, call: Callable[[], Iterator[T]]) -> Iterator[T]:
    """Yield the items of `call`, and repeat the call if it fails before its first item.

    The call is repeated after this machine's stack has loaded its model, or after the time that the error states.
    Raises the FairleadError that remains, and Unavailable at once when no stack is loading.
    """
    retries, retried = Retries(), 0
    while True:
        received = False
        try:
            for item in call():
                received = True
                yield item
            return
        except Unavailable:
            if received or not await_loading(address):
                raise
            continue
        except FairleadError as error:
            wait = None if received else retries.wait(error, retried, None)
            if wait is None:
                raise
            print(f"fairlead: {error}; trying again in {wait:.1f} s", file=sys.stderr, flush=True)
        time.sleep(wait)
        retried += 1


def await_loading(address: str) -> bool:
    """Wait while this machine's stack at `address` loads its model; return whether it was loading."""
    waited = False
    with Progress(sys.stderr) as progress:
        while loading := _loading(address):
            waited = True
            for name, step in loading.items():
                progress.show(f"waiting for {name}", step)
            time.sleep(POLL_SECONDS)
    return waited


def _loading(address: str) -> dict[str, str]:
    """Return the start-up step of each worker by name, or nothing once the gateway has a ready worker."""
    stack = endpoint.read()
    if stack is None or stack.gateway != address or ServiceLog(Path(stack.log_dir) / "gateway.log").lines("ready"):
        return {}
    return {path.stem: ServiceLog(path).step() for path in sorted(Path(stack.log_dir).glob("worker-*.log"))}
