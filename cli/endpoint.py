"""Where the stack of this machine is: written by `fairlead up`, found by the other commands."""

import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = "fairlead-endpoint.json"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Addresses, and the secret that admin calls carry."""

    gateway: str
    scheduler: str
    secret: str


def path() -> Path:
    """In the user's runtime folder, which others cannot read; without one, in the temporary folder, by user."""
    folder = os.environ.get("XDG_RUNTIME_DIR")
    return Path(folder) / FILE if folder else Path(tempfile.gettempdir()) / f"{os.getuid()}-{FILE}"


def write(endpoint: Endpoint) -> None:
    """Readable by this user only."""
    path().unlink(missing_ok=True)
    descriptor = os.open(path(), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(asdict(endpoint), file)


def read() -> Endpoint | None:
    """The running stack's endpoint; None when none was left by this user."""
    try:
        if path().stat().st_uid != os.getuid():
            return None
        return Endpoint(**json.loads(path().read_text()))
    except (OSError, ValueError, TypeError):
        return None


def remove() -> None:
    """The stack has ended."""
    path().unlink(missing_ok=True)
