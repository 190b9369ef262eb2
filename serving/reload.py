"""Reloading of keys and profiles when their files change, without a restart."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from serving.config import ConfigError

log = logging.getLogger(__name__)
LOOK_SECONDS = 1.0


async def follow(files: Sequence[str], reload: Callable[[], None]) -> None:
    """Call `reload` at once and after each change of a file's content; log a ConfigError that it raises.

    It runs until it is cancelled. The first call is for changes since the process loaded the files at its start.
    Contents are compared instead of dates, because Kubernetes replaces a mounted Secret by moving a link.
    """
    seen = await asyncio.to_thread(_contents, files)
    _try(reload)
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        contents = await asyncio.to_thread(_contents, files)
        if contents != seen:
            seen = contents
            if _try(reload):
                log.info("configuration reloaded", extra={"files": list(files)})


def _try(reload: Callable[[], None]) -> bool:
    try:
        reload()
    except ConfigError as error:
        log.error("configuration not reloaded: it is wrong", extra={"error": str(error)})
        return False
    return True


def _contents(files: Sequence[str]) -> list[bytes | None]:
    return [_content(Path(file)) for file in files]


def _content(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None
