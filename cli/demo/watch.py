"""`fairlead demo --watch`: the contention goes on until Ctrl-C, and is seen and driven on the gateway's page."""

import argparse
import asyncio
import contextlib
import tempfile
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cli import endpoint
from cli.demo.buttons import Button, offer
from cli.demo.lengths import lengths_for
from cli.demo.systems import FAIR, FCFS, VTC, WORKERS, System, scheduler_args, stack, worker_args
from cli.demo.users import USERS, DemoRecord, ask
from cli.service_process import ending_signals
from cli.stack import Stack
from serving.environment import BUTTONS

FLOOD, *OTHERS = USERS
VICTIM = f"worker-{WORKERS - 1}"
CHECK_SECONDS = 0.5
# Of the fake engine: slow enough that the users keep their requests waiting on any machine.
STEP_SECONDS = 0.05


class WatchedDemo:
    """Three users on a running stack, of which one floods while its button is pressed."""

    def __init__(self, running: Stack, system: System, engine: str) -> None:
        self._stack = running
        self._system = system
        self._systems = {each.local: each for each in (system, VTC, FCFS)}
        self._engine = engine
        self._lengths = lengths_for(engine)
        self._record = DemoRecord(deque(maxlen=1), deque(maxlen=1))
        self._flooding: asyncio.Task[None] | None = None
        self._working: asyncio.Task[None] | None = None  # a change of the stack
        self._says = ""

    def buttons(self) -> list[Button]:
        """Return the buttons as they are now; none can be pressed while the stack is being changed."""
        busy = self._working is not None
        is_killed = VICTIM not in [worker.name for worker in self._stack.workers]
        policies = [
            Button(name, system.title, "Policy", pressed=system is self._system, disabled=busy)
            for name, system in self._systems.items()
        ]
        return [
            Button("flood", "Flood", "Users", pressed=self._flooding is not None, says=self._says),
            Button("kill", f"Start {VICTIM}" if is_killed else f"Kill {VICTIM}", "Faults", disabled=busy),
            *policies,
        ]

    async def press(self, name: str) -> None:
        """Do what a button says; changes of the stack go on after the return."""
        if name == "flood":
            await self._toggle_flood()
        elif name == "kill" and VICTIM in [worker.name for worker in self._stack.workers]:
            self._stack.kill(VICTIM)
            self._says = f"{VICTIM} was killed; its calls go on at the others."
        elif name == "kill":
            self._change(f"{VICTIM} starts.", self._restart_victim)
        elif self._systems[name] is not self._system:
            self._system = self._systems[name]
            change = partial(
                self._stack.reconfigure,
                scheduler_args(self._system, self._engine),
                worker_args(self._system, self._engine, STEP_SECONDS),
            )
            self._change(f"Scheduler and workers start again with {self._system.title}.", change)

    async def run(self, stop: asyncio.Event) -> None:
        """Let the users contend until `stop` is set; raises StackError when a service ends by itself."""
        users = [asyncio.create_task(ask(self._stack.gateway, user, self._lengths, self._record)) for user in OTHERS]
        await self._toggle_flood()
        try:
            while not stop.is_set():
                if self._working is None:
                    self._stack.departed()
                elif self._working.done():
                    change, self._working, self._says = self._working, None, ""
                    change.result()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CHECK_SECONDS):
                        await stop.wait()
        finally:
            if self._working is not None:
                await asyncio.wait([self._working])
            tasks = [*users, *([self._flooding] if self._flooding else [])]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _toggle_flood(self) -> None:
        if self._flooding is None:
            self._flooding = asyncio.create_task(ask(self._stack.gateway, FLOOD, self._lengths, self._record))
            return
        flooding, self._flooding = self._flooding, None
        flooding.cancel()
        await asyncio.wait([flooding])

    def _restart_victim(self) -> None:
        self._stack.start_worker(VICTIM)
        self._stack.await_workers()

    def _change(self, says: str, change: Callable[[], None]) -> None:
        self._says = says
        self._working = asyncio.create_task(asyncio.to_thread(change))


def watch(args: argparse.Namespace) -> int:
    """Run the demo until Ctrl-C or SIGTERM; raises StackError when a service fails."""
    with tempfile.TemporaryDirectory(prefix="fairlead-demo-") as folder:  # of this user alone
        socket = Path(folder) / "buttons"
        buttons = {BUTTONS: str(socket)}
        try:
            with (
                stack(
                    FAIR[args.route],
                    args.model,
                    args.engine,
                    args.out,
                    step_seconds=STEP_SECONDS,
                    page_listen=args.page_listen,
                    environment=buttons,
                ) as running,
                endpoint.published(
                    endpoint.Endpoint(running.gateway, running.scheduler, running.secret, str(args.out))
                ),
            ):
                asyncio.run(_serve(running, FAIR[args.route], args.engine, socket))
        except KeyboardInterrupt:
            pass
    print("stopped", flush=True)
    return 0


async def _serve(running: Stack, system: System, engine: str, socket: Path) -> None:
    demo, stop = WatchedDemo(running, system, engine), asyncio.Event()
    for number in ending_signals():
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with await offer(socket, demo.buttons, demo.press):
        print(f"watch: {running.page}", flush=True)
        await demo.run(stop)
