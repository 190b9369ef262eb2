"""A whole cluster on this machine: scheduler, workers and gateway as real processes, embedded defaults, no Redis."""

import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc

from cli.service_process import ServiceProcess, StackError
from fairlead.rpc.channel import secret_metadata
from fairlead.v1 import scheduler_pb2, scheduler_pb2_grpc

# The first start of the built-in model converts it: 20 s of CPU, more when several workers wait for each other.
START_SECONDS = 180.0
STOP_SECONDS = 10.0
POLL_SECONDS = 0.1
CALL_SECONDS = 10.0


class Stack:
    """Use as a context manager, or `start` and `stop`. Every service listens on loopback, on a free port unless given.

    Extra arguments go to the services' command lines as they are.
    """

    def __init__(
        self,
        *,
        workers: int,
        log_dir: Path,
        model: str,
        engine: str = "transformers",
        listen: str = "127.0.0.1:0",
        scheduler_args: Sequence[str] = (),
        worker_args: Sequence[str] = (),
        gateway_args: Sequence[str] = (),
    ) -> None:
        self.secret = secrets.token_hex(32)
        self.scheduler = ""  # addresses, once started
        self.gateway = ""
        self._workers = workers
        self._log_dir = log_dir
        self._listen = listen
        self._scheduler_args = list(scheduler_args)
        # Two engines that both use every core slow each other down many times over.
        threads = max(1, (os.cpu_count() or 1) // workers)
        self._worker_args = ["--model", model, "--engine", engine, "--threads", str(threads), *worker_args]
        self._gateway_args = list(gateway_args)
        self.processes: list[ServiceProcess] = []

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Return when requests can be served by every worker; raises StackError."""
        deadline = time.monotonic() + START_SECONDS
        self._log_dir.mkdir(parents=True, exist_ok=True)
        scheduler = self._spawn("scheduler", "global_scheduler", "127.0.0.1:0", self._scheduler_args)
        self.scheduler = _address(scheduler, deadline)
        link = ["--scheduler", self.scheduler]
        for number in range(self._workers):
            name = f"worker-{number}"
            self._spawn(name, "local_worker", "127.0.0.1:0", ["--name", name, *link, *self._worker_args])
        gateway = self._spawn("gateway", "gateway", self._listen, [*link, *self._gateway_args])
        self.gateway = _address(gateway, deadline)
        self._wait_for_members(deadline)
        gateway.wait_for("ready", deadline)

    def check_alive(self) -> None:
        """Raise StackError when a service has ended."""
        for process in self.processes:
            process.check_alive()

    def stop(self) -> None:
        """End every service, gateway first, so that open calls can finish; kill what does not end in time."""
        deadline = time.monotonic() + STOP_SECONDS
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.end(deadline)

    def _spawn(self, name: str, module: str, listen: str, args: list[str]) -> ServiceProcess:
        # The secret goes by the environment: command lines are for everybody to read.
        environment = {"FAIRLEAD_SECRET": self.secret, "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        log = self._log_dir / f"{name}.log"
        process = ServiceProcess(name, module, ["--listen", listen, *args], environment, log)
        self.processes.append(process)
        return process

    def _wait_for_members(self, deadline: float) -> None:
        with grpc.insecure_channel(self.scheduler) as channel:
            admin = scheduler_pb2_grpc.AdminStub(channel)
            while True:
                self.check_alive()
                try:
                    request = scheduler_pb2.StatusRequest()
                    status = admin.Status(request, metadata=secret_metadata(self.secret), timeout=CALL_SECONDS)
                except grpc.RpcError as error:
                    raise StackError(f"the scheduler does not answer: {error}; logs: {self._log_dir}") from error
                if len(status.cluster.members) == self._workers:
                    return
                if time.monotonic() > deadline:
                    attached = len(status.cluster.members)
                    raise StackError(f"{attached} of {self._workers} workers attached in time; logs: {self._log_dir}")
                time.sleep(POLL_SECONDS)


def _address(process: ServiceProcess, deadline: float) -> str:
    return f"127.0.0.1:{process.wait_for('listening', deadline)['port']}"
