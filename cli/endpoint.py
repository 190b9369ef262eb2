"""Discovery of the stacks on this machine: each `fairlead up` writes a file, and other commands read the newest live
one.

The process that wrote a file holds a lock on it. The kernel releases the lock when the process ends for any reason. A
file without a lock is stale, and the command that finds it deletes it.
"""

import contextlib
import fcntl
import json
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

PREFIX, SUFFIX = "fairlead-endpoint-", ".json"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The addresses of a stack, the secret for admin calls, and the folder of the services' logs."""

    gateway: str
    scheduler: str
    secret: str
    log_dir: str


@contextlib.contextmanager
def published(endpoint: Endpoint) -> Iterator[None]:
    """Let this user's other commands find the stack until the context or the process ends."""
    folder, prefix = _place()
    path = folder / f"{prefix}{time.time_ns()}-{os.getpid()}{SUFFIX}"
    unfinished = path.with_suffix(".new")
    # Readable by this user only. Renamed after it is locked, so that no reader sees it unlocked and deletes it.
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        json.dump(asdict(endpoint), file)
        file.flush()
        unfinished.rename(path)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def read() -> Endpoint | None:
    """Return the stack that this user started last among the running ones, or None when none runs."""
    folder, prefix = _place()
    for path in sorted(folder.glob(f"{prefix}*{SUFFIX}"), reverse=True):  # names begin with the time
        with contextlib.suppress(OSError, ValueError, TypeError), path.open() as file:
            if os.fstat(file.fileno()).st_uid == os.getuid():
                if _is_locked(file.fileno()):
                    return Endpoint(**json.load(file))
                path.unlink(missing_ok=True)
    return None


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _place() -> tuple[Path, str]:
    """Return the folder and the file name prefix: the user's private runtime folder, or else the temporary folder.

    In the temporary folder, the prefix contains the user id. After `su`, and in containers, the variable often names
    a folder that is not there or belongs to somebody else.
    """
    folder = os.environ.get("XDG_RUNTIME_DIR", "")
    is_usable = os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)
    return (Path(folder), PREFIX) if is_usable else (Path(tempfile.gettempdir()), f"{os.getuid()}-{PREFIX}")
