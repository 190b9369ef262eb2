"""A pod on its node: started, probed, restarted and ended as a kubelet does it."""

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.system.deploy.rehearsal.container import Container
from tests.system.deploy.rehearsal.network import Interface
from tests.system.deploy.rehearsal.probes import PortProbe, Probe
from tests.system.deploy.rehearsal.sidecar import Sidecar

RESTART_SECONDS = 10.0  # from the second restart on


class Pod:
    """`spec` is the manifest's pod specification, of one container beside `sidecars`."""

    def __init__(
        self, name: str, interface: Interface, spec: dict[str, Any], container: Container, sidecars: Sequence[Sidecar]
    ) -> None:
        self.name = name
        self.ready = False
        self.restarts: list[str] = []  # why, each
        self.end = ""  # how it ended, once terminated
        self.interface = interface
        self._spec = spec
        self._container = container
        self._sidecars = sidecars
        self._ready_since = 0.0
        self._changed = asyncio.Event()
        self._terminating = False
        self._process: asyncio.subprocess.Process | None = None
        self._life = asyncio.create_task(self._live())

    @property
    def address(self) -> str:
        """Where it is reached."""
        return self.interface.address

    def kill(self) -> None:
        """The container's process dies at once; the kubelet will start it again."""
        assert self._process is not None
        self._process.kill()

    async def run(self, command: str) -> str:
        """Run a shell's command of this machine in the pod's network and return what it prints."""
        status, output = await self._container.execute("sh", "-c", command)
        assert status == 0, command
        return output

    async def connects(self, address: str, port: int) -> bool:
        """Whether a process in the pod can connect to there."""
        status, _ = await self._container.execute("bash", "-c", f": 2>/dev/null </dev/tcp/{address}/{port}")
        return status == 0

    async def restarted(self) -> None:
        """Return when the container has been started again and is ready."""
        await self._becomes(lambda: bool(self.restarts) and self.ready)

    async def available(self, seconds: float) -> None:
        """Return when it has been ready for so long."""
        while True:
            await self._becomes(lambda: self.ready)
            missing = self._ready_since + seconds - time.monotonic()
            if missing <= 0:
                return
            await asyncio.sleep(missing)

    async def terminate(self) -> None:
        """preStop, SIGTERM, and SIGKILL when the grace period is over."""
        self._terminating = True
        self._set_ready(False)
        ends = time.monotonic() + self._spec["terminationGracePeriodSeconds"]
        hook = self._description.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command")
        if hook:
            await (await asyncio.create_subprocess_exec(*hook)).wait()
        process = self._process
        if process is not None and process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout_at(asyncio.get_running_loop().time() + max(0.0, ends - time.monotonic())):
                    self.end = f"status {await process.wait()}"
            except TimeoutError:
                process.kill()
                self.end = "killed after its grace period"
        await self._life
        for sidecar in reversed(self._sidecars):
            await sidecar.stop()
        await self.interface.down()

    @property
    def _description(self) -> dict[str, Any]:
        description: dict[str, Any] = self._spec["containers"][0]
        return description

    async def _live(self) -> None:
        await self.interface.up()
        for sidecar in self._sidecars:
            await sidecar.start()
        while not self._terminating:
            process = self._process = await self._container.start()
            probing = asyncio.create_task(self._probe(process))
            status = await process.wait()
            probing.cancel()
            self._set_ready(False)
            if not self._terminating:
                self.restarts.append(f"status {status}")
                await asyncio.sleep(0 if len(self.restarts) == 1 else RESTART_SECONDS)

    async def _probe(self, process: asyncio.subprocess.Process) -> None:
        ports = {port["name"]: port["containerPort"] for port in self._description["ports"]}
        startup, liveness, readiness = (
            PortProbe.of(self._description[kind], self.address, ports)
            for kind in ("startupProbe", "livenessProbe", "readinessProbe")
        )
        if not await startup.until_it_holds():
            process.kill()
            return
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(readiness))
            await liveness.until_it_fails()
            process.kill()

    async def _follow(self, readiness: Probe) -> None:
        failed = 0
        while True:
            holds = await readiness.holds()
            failed = 0 if holds else failed + 1
            if holds and not self._terminating:
                self._set_ready(True)
            elif failed >= readiness.failures:
                self._set_ready(False)
            await asyncio.sleep(readiness.period)

    def _set_ready(self, ready: bool) -> None:
        if ready and not self.ready:
            self._ready_since = time.monotonic()
        self.ready = ready
        self._changed.set()
        self._changed = asyncio.Event()

    async def _becomes(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()
