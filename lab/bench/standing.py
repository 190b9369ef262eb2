"""What a fleet costs the control plane while no call arrives: CPU time per second of scheduler and gateway.

    python -m lab.bench.standing [--workers 1000] [--seconds 20] [--rounds 1] [--beside FOLDER] [--bare]
                             [--every SECONDS]

The workers are fake and share this process; each has the reports of a real worker, and a connection of its own over
loopback. They are idle at first. Then all of them compute a full batch, at last with requests that wait, and then they
also begin and end calls and cache blocks, which is the cost of calls and no standing cost. With `--beside` another
checkout, its workers included, is measured in alternating rounds, with `--bare` a scheduler that only reads what
this checkout's workers send, and with `--every` workers that report their load after another time; the median of the
rounds counts.
"""

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from cli.service_process import ServiceProcess
from fairlead.outcomes import Outcome
from fairlead.v1 import scheduler_pb2, scheduler_pb2_grpc
from lab.bench.control_plane.job import cpu_seconds
from lab.bench.machine import commit, processor
from local_worker.attachment import SchedulerAttachment
from local_worker.core import delivery
from local_worker.core.events import (
    ClientAccountReport,
    EngineLoad,
    LevelGapReport,
    RequestAccepted,
    RequestEnded,
    WorkerUpdate,
)
from local_worker.core.request import Request
from local_worker.worker_snapshot import WorkerSnapshot
from serving.rpc.channel import open_channel, secret_metadata
from serving.sampling_params import SamplingParams

SCHEDULER, GATEWAY, BARE = "global_scheduler", "gateway", "lab.bench.bare_scheduler"
REPORTS = "reports"  # the name of their number in figures
COUNT = "/bare/Count"  # the method of a bare scheduler that returns the number of reports so far, in decimal digits
SECRET = "a secret for this benchmark"
MODEL = scheduler_pb2.ModelInfo(name="fake", block_tokens=16, kv_tokens=1 << 20, max_running=64, max_model_tokens=8192)
DEADLINE_SECONDS = 120.0
SETTLE_SECONDS = 3.0
STEP_SECONDS = 0.2  # between two steps of a worker whose load changes; a real one makes more
GROUPS = 20  # of workers that make their steps together
RUNNING = 8  # requests of a worker's batch; each is of another client
CLIENTS = 2_000  # of all workers
# Of 8 requests at 20 tokens a second, two fill a block of 16 tokens in each step, and one of 10 seconds ends every 6.
STEP_BLOCKS = 2
STEPS_PER_CALL = 6
PROMPT = [0] * 500
KEPT_BLOCKS = 200  # of a worker, of which the oldest are evicted
Figures = dict[str, dict[str, float]]  # by state and column: CPU ms per second of each process, reports per second


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """The processes whose CPU time is measured, and the port of the first, the scheduler."""

    processes: list[ServiceProcess]
    port: int

    def cpu(self) -> dict[str, float]:
        """Return the CPU seconds so far of each process by name."""
        return {process.name: cpu_seconds(process.pid) for process in self.processes}


class FakeWorker:
    """A worker's reports without a worker; each has an address of its own, since channels to one address are shared."""

    def __init__(self, number: int, port: int) -> None:
        hello = scheduler_pb2.Hello(
            worker=f"worker-{number}", instance="1", address=f"127.0.0.1:{number}", models=[MODEL]
        )
        self._snapshot = WorkerSnapshot(hello)
        self._attachment = SchedulerAttachment(
            scheduler=f"127.1.{number // 250}.{number % 250 + 1}:{port}",
            secret=SECRET,
            snapshot=self._snapshot,
            drain=lambda: None,
            flush=lambda: None,
        )
        self._number = number
        self._clients = [f"user-{(number * RUNNING + place) % CLIENTS}" for place in range(RUNNING)]
        self._steps = 0
        self._blocks = 0
        self._cached: deque[int] = deque()
        self._open: dict[int, Request] = {}

    async def run(self) -> None:
        """Report until cancelled."""
        self._deliver(WorkerUpdate(load=self._load(0, 0)))
        await self._attachment.run()

    def step(self, waiting: int) -> None:
        """Make an engine step, after which so many requests wait."""
        self._deliver(self._update(waiting))

    def serve(self) -> None:
        """Make an engine step that fills blocks, and sometimes ends a call and begins another."""
        links = []
        for _ in range(STEP_BLOCKS):
            parent = self._cached[-1] if self._cached else 0
            self._blocks += 1
            self._cached.append(self._number << 32 | self._blocks)
            links.append((self._cached[-1], parent))
        evicted = [self._cached.popleft() for _ in range(len(self._cached) - KEPT_BLOCKS)]
        update = replace(self._update(waiting=0), cached=tuple(links), evicted=tuple(evicted))
        call, rest = divmod(self._steps, STEPS_PER_CALL)
        if not rest:
            client = self._clients[call % RUNNING]
            request = self._open[call] = self._request(call, client)
            update.events.accepted.append(RequestAccepted(request, 0))
            if (ended := self._open.pop(call - RUNNING, None)) is not None:
                update.events.ended.append(RequestEnded(ended, Outcome.COMPLETED))
        self._deliver(update)

    def _request(self, call: int, client: str) -> Request:
        return Request(
            id=f"{self._number}-{call}",
            client=client,
            model=MODEL.name,
            tokens=PROMPT,
            prompt_tokens=len(PROMPT),
            digests=[],
            chain_seed=0,
            sampling=SamplingParams(),
            arrival=call,
        )

    def _update(self, waiting: int) -> WorkerUpdate:
        self._steps += 1
        service = float(self._steps)
        accounts = [ClientAccountReport(client, service, service, -service, 0, 1) for client in self._clients]
        oldest = time.monotonic() - STEP_SECONDS if waiting else None
        return WorkerUpdate(load=self._load(RUNNING, waiting), accounts=accounts, oldest_queued_at=oldest)

    def _load(self, running: int, waiting: int) -> EngineLoad:
        return EngineLoad(
            running=running,
            waiting=waiting,
            kv_tokens_used=running * 500 + self._steps,
            step_seconds=0.021,
            fairness_gap=321.5,
            fairness_bound=4321.5,
            service_rate=987.5,
            prompt_tokens=1_234_567 + self._steps,
            cached_tokens=765_432,
            levels=(LevelGapReport("tenant", 0.0), LevelGapReport("user", 321.5)),
        )

    def _deliver(self, update: WorkerUpdate) -> None:
        self._snapshot.deliver(update)
        self._attachment.deliver(update)


async def measure(plane: ControlPlane, workers: int, seconds: float) -> Figures:
    """Attach the workers, and return what they cost in each state."""
    fleet = [FakeWorker(number, plane.port) for number in range(workers)]
    states: dict[str, Callable[[FakeWorker], None]] = {
        "busy": lambda worker: worker.step(waiting=0),
        "busy, with queues": lambda worker: worker.step(waiting=3),
        "busy, with calls": FakeWorker.serve,
    }
    most = DEADLINE_SECONDS + (1 + len(states)) * (SETTLE_SECONDS + 2 * seconds)  # what a starved machine may need
    async with asyncio.timeout(most), asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(worker.run()) for worker in fleet]
        await _all_attached(plane.port, workers)
        figures = {"idle": await _window(plane, seconds)}
        for state, step in states.items():
            steps = tasks.create_task(_steps(fleet, step))
            figures[state] = await _window(plane, seconds)
            steps.cancel()
        for task in running:
            task.cancel()
    return figures


async def _all_attached(port: int, workers: int) -> None:
    async with open_channel(f"127.0.0.1:{port}") as channel, asyncio.timeout(DEADLINE_SECONDS):
        admin = scheduler_pb2_grpc.AdminStub(channel)
        while True:
            status = await admin.Status(scheduler_pb2.StatusRequest(), metadata=secret_metadata(SECRET))
            if len(status.cluster.members) == workers:
                return
            await asyncio.sleep(1.0)


async def _steps(fleet: list[FakeWorker], step: Callable[[FakeWorker], None]) -> None:
    while True:
        for group in range(GROUPS):
            for worker in fleet[group::GROUPS]:
                step(worker)
            await asyncio.sleep(STEP_SECONDS / GROUPS)


async def _window(plane: ControlPlane, seconds: float) -> dict[str, float]:
    await asyncio.sleep(SETTLE_SECONDS)
    before, reports, began = plane.cpu(), await _reports(plane), time.monotonic()
    await asyncio.sleep(seconds)
    passed = time.monotonic() - began
    spent = {name: (now - before[name]) / passed * 1e3 for name, now in plane.cpu().items()}
    if plane.processes[0].name == BARE:
        spent[REPORTS] = (await _reports(plane) - reports) / passed
    return spent


async def _reports(plane: ControlPlane) -> int:
    """Return the number of reports that a bare scheduler has read; others do not count them."""
    if plane.processes[0].name != BARE:
        return 0
    async with open_channel(f"127.0.0.1:{plane.port}") as channel:
        return int(await channel.unary_unary(COUNT)(b""))


def run(workers: int, seconds: float, bare: bool) -> Figures:
    """Start scheduler and gateway, or a bare scheduler, and return what `workers` workers cost them in each state."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as processes:
        logs, until = Path(folder), time.monotonic() + DEADLINE_SECONDS
        scheduler = [BARE] if bare else [SCHEDULER, "--listen", "0.0.0.0:0"]
        started = [_start(processes, logs, *scheduler)]
        port = started[0].wait_for("listening", until)["port"]
        if not bare:
            gateway = (GATEWAY, "--listen", "127.0.0.1:0", "--scheduler", f"127.0.0.1:{port}")
            started.append(_start(processes, logs, *gateway))
            started[-1].wait_for("listening", until)
        return asyncio.run(measure(ControlPlane(started, port), workers, seconds))


def _start(processes: ExitStack, logs: Path, module: str, *args: str) -> ServiceProcess:
    process = ServiceProcess(module, module, list(args), {"FAIRLEAD_SECRET": SECRET}, logs / f"{module}.log")
    processes.callback(lambda: process.end(time.monotonic() + DEADLINE_SECONDS))
    processes.callback(process.terminate)
    return process


def _run_in(folder: Path, *options: str) -> Figures:
    """Run this file over the packages of the checkout in `folder`."""
    command = [sys.executable, "-P", str(Path(__file__).resolve()), "--json", *options]
    environment = {**os.environ, "PYTHONPATH": str(folder.resolve())}
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, check=True)
    figures: Figures = json.loads(done.stdout)
    return figures


def _table(measured: dict[str, list[Figures]]) -> None:
    print("\n| | state | scheduler, CPU ms per s | gateway, CPU ms per s | reports per s |\n|---|---|---|---|---|")
    for name, rounds in measured.items():
        for state in rounds[0]:
            columns: dict[str, list[float]] = {}
            for figures in rounds:
                for column, value in figures[state].items():
                    columns.setdefault(column, []).append(value)
            scheduler = columns.get(SCHEDULER) or columns[BARE]
            spread = f"{statistics.median(scheduler):.1f} ({min(scheduler):.1f}..{max(scheduler):.1f})"
            others = [
                f"{statistics.median(columns[column]):.1f}" if column in columns else "-"
                for column in (GATEWAY, REPORTS)
            ]
            print(f"| {name} | {state} | {spread} | {' | '.join(others)} |")


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.standing", description=__doc__)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of each measurement in seconds")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--beside", type=Path, help="a checkout to measure in the same rounds")
    parser.add_argument("--bare", action="store_true", help="measure a scheduler that only reads, too")
    parser.add_argument("--every", type=float, metavar="SECONDS", help="measure workers with this report period, too")
    parser.add_argument("--json", action="store_true", help="print the figures of one round as JSON only")
    args = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection is a file; the services inherit the limit
    if args.json:
        delivery.REPORT_SECONDS = args.every or delivery.REPORT_SECONDS
        print(json.dumps(run(args.workers, args.seconds, args.bare)))
        return
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    print(f"{processor()}; commit {commit()}; {args.workers} workers; {load}", flush=True)
    one = (f"--workers={args.workers}", f"--seconds={args.seconds}")
    systems: dict[str, tuple[Path, tuple[str, ...]]] = {"this checkout": (Path.cwd(), one)}
    if args.beside:
        systems["beside"] = (args.beside, one)
    if args.bare:
        systems["bare"] = (Path.cwd(), (*one, "--bare"))
    if args.every:
        systems[f"reports every {args.every:g} s"] = (Path.cwd(), (*one, f"--every={args.every}"))
    measured: dict[str, list[Figures]] = {name: [] for name in systems}
    for number in range(args.rounds):
        for name in list(systems)[:: 1 if number % 2 else -1]:
            folder, options = systems[name]
            measured[name].append(_run_in(folder, *options))
    _table(measured)
    print(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
