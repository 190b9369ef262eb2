"""What the processes of one run, or of several runs on one machine, do one at a time: fetching programs."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Of all checkouts on a machine. What lies there is named after its version, so that it serves each of them.
CACHE = Path.home() / ".cache" / "fairlead" / "tests"


@contextmanager
def exclusively(what: str) -> Iterator[None]:
    """Wait until no other process is inside for the same thing; `what` is part of a file's name."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{what}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
