"""An init container that restarts always: it is ready before the pod's containers start, and ends after them."""

import asyncio
from typing import Any

from tests.system.deploy.rehearsal.container import Container
from tests.system.deploy.rehearsal.probes import CommandProbe


class Sidecar:
    """`description` is the manifest's, with a startup probe that runs a command."""

    def __init__(self, description: dict[str, Any], container: Container) -> None:
        self._container = container
        self._startup = CommandProbe.of(description["startupProbe"], container)
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Return when it is ready."""
        self._process = await self._container.start()
        assert await self._startup.until_it_holds(), self._container.log.read_text()

    async def stop(self) -> None:
        """End it."""
        assert self._process is not None
        assert self._process.returncode is None, "it was there for as long as the pod's containers"
        self._process.terminate()
        await self._process.wait()
