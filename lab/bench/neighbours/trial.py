"""One policy's trial: the quiet user alone, then beside each neighbour in turn, on one stack."""

import asyncio
import contextlib
import hashlib
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cli.admin import Admin
from cli.stack import Stack
from fairlead import Client
from lab.bench.flood.phase import Phase
from lab.bench.flood.trial import ask
from lab.bench.flood.workload import Workload
from lab.bench.neighbours.engines import ENGINES
from lab.bench.neighbours.neighbour import Neighbour
from lab.bench.neighbours.quiet import QuietUser
from lab.bench.neighbours.step_tally import Tally, read_tally
from serving.rpc.channel import open_sync_channel

QUIET, CROWD = "quiet", "crowd"  # tenants, whose names are their keys
ACROSS = {"fcfs": "round-robin"}  # the scheduler's policy beside one of the workers; with one worker it has no choice
RAMP_SECONDS = 2.0  # from a neighbour's begin until calls count
IDLE_POLL_SECONDS = 0.1
IDLE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Observation:
    """The quiet user's calls of one phase, and what the engine computed meanwhile. `beside` is empty if alone."""

    policy: str
    beside: str
    phase: Phase
    work: Tally


@dataclass(slots=True)
class Trial:
    """A stack under one policy, with one worker over an engine of ENGINES."""

    engine: str
    policy: str
    folder: Path
    work: Workload
    seconds: float

    async def run(self, neighbours: Sequence[Neighbour]) -> AsyncIterator[Observation]:
        """Yield what was seen alone and beside each neighbour."""
        setting = ENGINES[self.engine]
        tally, keys = self.folder / "tally.jsonl", self.folder / "keys.yaml"
        keys.write_text(_keys())
        stack = Stack(
            workers=1,
            log_dir=self.folder,
            model=setting.model,
            engine=self.engine,
            worker_module="lab.bench.neighbours.tallied_worker",
            worker_args=[
                *("--tally", str(tally), "--policy", self.policy),
                *(part for name, value in setting.sizes.items() for part in (f"--{name}", str(value))),
            ],
            scheduler_args=["--policy", ACROSS[self.policy]] if self.policy in ACROSS else [],
            gateway_args=["--throttle", "none", "--keys", str(keys)],
            http_listen="127.0.0.1:0",
        )
        try:
            await asyncio.to_thread(stack.start)
            async with Client(stack.gateway, api_key=QUIET) as client:
                await self._ask(client, "warm-up", 2.0)
                phase = await self._ask(client, "alone", self.seconds)
                yield Observation(self.policy, "", phase, read_tally(tally, phase.began, phase.ended))
                for neighbour in neighbours:
                    with self._running(neighbour, stack):
                        await asyncio.sleep(RAMP_SECONDS)
                        phase = await self._ask(client, neighbour.name, self.seconds)
                    work = read_tally(tally, phase.began, phase.ended)
                    yield Observation(self.policy, neighbour.name, phase, work)
                    await asyncio.to_thread(_until_idle, stack)
        finally:
            await asyncio.to_thread(stack.stop)

    async def _ask(self, client: Client, phase: str, seconds: float) -> Phase:
        """Let the quiet user ask for so many seconds, then cancel what is open."""
        loop, user = asyncio.get_running_loop(), QuietUser(client)
        began = loop.time()
        asking = asyncio.create_task(ask(user, self.work.questions(phase, seconds)))
        await asyncio.sleep(seconds)
        ended = loop.time()
        asking.cancel()
        await asyncio.wait([asking])
        return Phase(began, ended, user.calls)

    @contextlib.contextmanager
    def _running(self, neighbour: Neighbour, stack: Stack) -> Iterator[None]:
        http = stack.http.removesuffix("/v1")
        command = [sys.executable, "-m", "lab.bench.neighbours.crowd", neighbour.name]
        command += ["--longest-prompt", str(ENGINES[self.engine].longest_prompt)]
        command += ["--gateway", stack.gateway, "--http", http, "--key", CROWD]
        with (self.folder / "crowd.log").open("ab") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0)
        try:
            yield
            if process.poll() is not None:
                raise RuntimeError(f"{neighbour.name} ended by itself; its log is {self.folder / 'crowd.log'}")
        finally:
            process.kill()  # its calls are cancelled, as those of any caller that is gone
            process.wait()


def _keys() -> str:
    """Return the gateway's file of keys: two tenants, whose keys may name users."""
    lines = [
        f"  - {{hash: {hashlib.sha256(name.encode()).hexdigest()}, tenant: {name}, names_users: true}}"
        for name in (QUIET, CROWD)
    ]
    return "\n".join(["keys:", *lines, ""])


def _until_idle(stack: Stack) -> None:
    """Return when the worker has reported twice that it has no request; raise TimeoutError if it goes on."""
    with open_sync_channel(stack.scheduler) as channel:
        admin, end = Admin(stack.scheduler, channel, stack.secret), time.monotonic() + IDLE_SECONDS
        while time.monotonic() < end:
            [worker] = admin.status().cluster.members
            if not (worker.load.running or worker.load.waiting):
                return
            time.sleep(IDLE_POLL_SECONDS)
    raise TimeoutError(f"the worker still computes {IDLE_SECONDS} s after its callers have gone")
