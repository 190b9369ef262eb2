"""What the processes of one run, or two runs in one checkout, do one at a time: fetching programs."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(__file__).parents[1] / ".cache"


@contextmanager
def exclusively() -> Iterator[None]:
    """Wait until no other process is inside."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
