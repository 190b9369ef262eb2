"""What a fleet costs the control plane while no call arrives: CPU time per second of scheduler and gateway.

    python -m bench.standing [--workers 1000] [--seconds 20]

The workers are fake and share this process; each has the reports of a real worker, and a connection of its own over
loopback. They are idle at first, then all of them make steps, and at last requests wait at each.
"""

import argparse
import asyncio
import os
import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.control_plane.job import cpu_seconds
from bench.machine import commit, processor
from cli.service_process import ServiceProcess
from fairlead.v1 import scheduler_pb2, scheduler_pb2_grpc
from local_worker.attachment import SchedulerAttachment
from local_worker.step_events import EngineLoad, StepEvents
from local_worker.worker_snapshot import WorkerSnapshot
from serving.rpc.channel import open_channel, secret_metadata

SECRET = "a secret for this benchmark"
MODEL = scheduler_pb2.ModelInfo(name="fake", block_tokens=16, kv_tokens=1 << 20, max_running=64, max_model_tokens=8192)
DEADLINE_SECONDS = 120.0
SETTLE_SECONDS = 3.0
STEP_SECONDS = 0.2  # between two steps of a worker whose load changes; a real one makes more
GROUPS = 20  # of workers that make their steps together


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """Hold the processes whose CPU time is measured."""

    scheduler: ServiceProcess
    gateway: ServiceProcess
    port: int

    def cpu(self) -> tuple[float, float]:
        """Return the CPU seconds so far of scheduler and gateway."""
        return cpu_seconds(self.scheduler.pid), cpu_seconds(self.gateway.pid)


class FakeWorker:
    """A worker's reports without a worker; each has an address of its own, since channels to one address are shared."""

    def __init__(self, number: int, port: int) -> None:
        hello = scheduler_pb2.Hello(worker=f"worker-{number}", instance="1", address=f"127.0.0.1:{number}", model=MODEL)
        self._snapshot = WorkerSnapshot(hello)
        self._attachment = SchedulerAttachment(
            scheduler=f"127.1.{number // 250}.{number % 250 + 1}:{port}",
            secret=SECRET,
            snapshot=self._snapshot,
            drain=lambda: None,
            flush=lambda: None,
        )
        self._steps = 0

    async def run(self) -> None:
        """Report until cancelled."""
        await self._attachment.run()

    def step(self, waiting: int) -> None:
        """Make an engine step, after which so many requests wait."""
        self._steps += 1
        out = StepEvents(load=EngineLoad(running=8, waiting=waiting, kv_tokens_used=self._steps))
        self._snapshot.deliver(out)
        self._attachment.deliver(out)


async def measure(plane: ControlPlane, workers: int, seconds: float) -> None:
    """Attach the workers, and print what they cost in each state."""
    fleet = [FakeWorker(number, plane.port) for number in range(workers)]
    began = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(worker.run()) for worker in fleet]
        await _all_attached(plane.port, workers)
        print(f"attached within {time.monotonic() - began:.1f} s")
        print("\n| workers | scheduler, CPU ms per s | gateway, CPU ms per s |\n|---|---|---|")
        await _window(plane, "idle", seconds)
        for state, waiting in (("busy", 0), ("busy, with queues", 3)):
            steps = tasks.create_task(_steps(fleet, waiting))
            await _window(plane, state, seconds)
            steps.cancel()
        for task in running:
            task.cancel()


async def _all_attached(port: int, workers: int) -> None:
    async with open_channel(f"127.0.0.1:{port}") as channel, asyncio.timeout(DEADLINE_SECONDS):
        admin = scheduler_pb2_grpc.AdminStub(channel)
        while True:
            status = await admin.Status(scheduler_pb2.StatusRequest(), metadata=secret_metadata(SECRET))
            if len(status.cluster.members) == workers:
                return
            await asyncio.sleep(1.0)


async def _steps(fleet: list[FakeWorker], waiting: int) -> None:
    while True:
        for group in range(GROUPS):
            for worker in fleet[group::GROUPS]:
                worker.step(waiting)
            await asyncio.sleep(STEP_SECONDS / GROUPS)


async def _window(plane: ControlPlane, state: str, seconds: float) -> None:
    await asyncio.sleep(SETTLE_SECONDS)
    before, began = plane.cpu(), time.monotonic()
    await asyncio.sleep(seconds)
    spent = [
        (after - earlier) / (time.monotonic() - began) * 1e3 for earlier, after in zip(before, plane.cpu(), strict=True)
    ]
    print(f"| {state} | {spent[0]:.1f} | {spent[1]:.1f} |", flush=True)


def _start(name: str, logs: Path, *args: str) -> ServiceProcess:
    return ServiceProcess(name, name, list(args), {"FAIRLEAD_SECRET": SECRET}, logs / f"{name}.log")


def main() -> None:
    """Run the benchmark; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m bench.standing", description=__doc__)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    args = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection is a file; the services inherit the limit
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    print(f"{processor()}; commit {commit()}; {args.workers} workers; {load}")
    with tempfile.TemporaryDirectory() as folder:
        logs, until = Path(folder), time.monotonic() + DEADLINE_SECONDS
        processes = [scheduler := _start("global_scheduler", logs, "--listen", "0.0.0.0:0")]
        try:
            port = scheduler.wait_for("listening", until)["port"]
            gateway = _start("gateway", logs, "--listen", "127.0.0.1:0", "--scheduler", f"127.0.0.1:{port}")
            processes.append(gateway)
            gateway.wait_for("listening", until)
            asyncio.run(measure(ControlPlane(scheduler, gateway, port), args.workers, args.seconds))
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.end(time.monotonic() + DEADLINE_SECONDS)


if __name__ == "__main__":
    main()
