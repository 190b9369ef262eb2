"""What the processes of one run, or two runs in one checkout, do one at a time: fetching programs."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(__file__).parents[1] / ".cache"


@contextmanager
def exclusively(what: str) -> Iterator[None]:
    """Wait until no other process is inside for the same thing; `what` is part of a file's name."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"{what}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
