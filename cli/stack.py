"""A cluster on this machine: scheduler, workers and gateway as processes, with embedded defaults and without Redis."""

import os
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc

from cli.progress import Progress
from cli.service_process import ServiceProcess, StackError
from fairlead.v1 import scheduler_pb2, scheduler_pb2_grpc
from gateway.page.access import page_key
from serving.rpc.address import reached_at
from serving.rpc.channel import open_sync_channel, secret_metadata

STOP_SECONDS = 10.0
POLL_SECONDS = 0.1
CALL_SECONDS = 10.0


class Stack:
    """A local cluster, used as a context manager or with `start` and `stop`. Services listen on loopback, by default on
    free ports.

    Workers, which are processes of `worker_module`, compute `model`; with `engines` there is an adapter in place of
    each, with the arguments of that engine. Extra arguments are passed to the services' command lines, and an extra
    `environment` to all of them. Progress is shown on standard error. A worker may take any time to download or load
    its model.
    """

    def __init__(
        self,
        *,
        workers: int,
        log_dir: Path,
        model: str = "",
        engine: str = "transformers",
        worker_module: str = "local_worker",
        engines: Sequence[Sequence[str]] = (),
        listen: str = "127.0.0.1:0",
        scheduler_args: Sequence[str] = (),
        worker_args: Sequence[str] = (),
        gateway_args: Sequence[str] = (),
        http_listen: str = "",
        page_listen: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.secret = secrets.token_hex(32)
        self.scheduler = ""  # addresses, set by `start`
        self.gateway = ""
        self.http = ""  # the gateway's HTTP address, if it serves HTTP
        self.page = ""  # the address of the operators' page with its key, if it is served
        self._log_dir = log_dir
        self._listen = listen
        self._scheduler_args = list(scheduler_args)
        # Engines that each use all cores slow each other down several times.
        self._environment = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // workers)), **(environment or {})}
        own = [worker_module, "--model", model, "--engine", engine]
        beside = [["engine_adapter", *arguments] for arguments in engines]
        # The module of each worker and its arguments, by the worker's name.
        self._commands = {f"worker-{number}": command for number, command in enumerate(beside or [own] * workers)}
        self._worker_args = list(worker_args)
        self._http_listen, self._page_listen = http_listen, page_listen
        listeners = {"--http-listen": http_listen, "--page-listen": page_listen}
        self._gateway_args = [part for flag, address in listeners.items() if address for part in (flag, address)]
        self._gateway_args += gateway_args
        self.processes: list[ServiceProcess] = []
        self._progress = Progress(sys.stderr)
        self._starting: list[ServiceProcess] = []

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
        """Start all services and return when every worker can serve requests; raises StackError."""
        self.launch()
        self.await_workers()

    def launch(self) -> None:
        """Start all services and return when scheduler and gateway listen, while workers still load; raises
        StackError."""
        self._log_dir.mkdir(parents=True, exist_ok=True)
        self._start_scheduler("127.0.0.1:0")
        for name in self._commands:
            self.start_worker(name)
        gateway_args = ["--scheduler", self.scheduler, *self._gateway_args]
        gateway = self._spawn("gateway", "gateway", self._listen, gateway_args)
        self.gateway = self._address(gateway, self._listen)
        [listening] = gateway.log.lines("listening")
        scheme = "https" if listening["tls"] else "http"
        if port := listening["http_port"]:
            self.http = f"{scheme}://{reached_at(self._http_listen, port)}/v1"
        if port := listening["page_port"]:
            # Browsers send no server what follows the `#`.
            self.page = f"{scheme}://{reached_at(self._page_listen, port)}/#key={page_key(self.secret)}"

    def await_workers(self) -> None:
        """Return when every worker can serve requests; raises StackError when a service ends meanwhile."""
        with open_sync_channel(self.scheduler) as channel:
            admin = scheduler_pb2_grpc.AdminStub(channel)
            while self._starting:
                self._look()
                attached = self._attached(admin)
                for worker in [process for process in self._starting if process.name in attached]:
                    self._started(worker, "ready")
        [gateway] = [process for process in self.processes if process.name == "gateway"]
        while not gateway.log.lines("ready"):
            self._look()

    @property
    def workers(self) -> list[ServiceProcess]:
        """The workers that have not left the cluster."""
        return [process for process in self.processes if process.name in self._commands]

    def departed(self) -> list[str]:
        """Return the workers that drained and ended since the last call; raises StackError when a service ended
        otherwise."""
        gone = [process for process in self.workers if process.status == 0]
        self.processes = [process for process in self.processes if process not in gone]
        self._check_alive()
        return [process.name for process in gone]

    def start_worker(self, name: str) -> None:
        """Start one worker; `await_workers` returns when it can serve requests."""
        link = ["--name", name, "--scheduler", self.scheduler]
        module, *arguments = self._commands[name]
        self._spawn(name, module, "127.0.0.1:0", [*link, *arguments, *self._worker_args])

    def kill(self, name: str) -> None:
        """Kill a service, which is no longer part of the stack from then on."""
        [process] = [process for process in self.processes if process.name == name]
        self.processes.remove(process)
        process.kill()

    def reconfigure(self, scheduler_args: Sequence[str], worker_args: Sequence[str]) -> None:
        """Replace scheduler and workers by others with these arguments, while the gateway goes on.

        Every worker of the stack is started, also those that were killed. Raises StackError.
        """
        self._scheduler_args, self._worker_args = list(scheduler_args), list(worker_args)
        for process in [process for process in self.processes if process.name != "gateway"]:
            self.kill(process.name)
        self._start_scheduler(self.scheduler)
        for name in self._commands:
            self.start_worker(name)
        self.await_workers()

    def stop(self) -> None:
        """End every service, the gateway first so that open calls can finish; kill those that do not end in time."""
        self._progress.clear()
        end_all(self.processes)

    def _start_scheduler(self, listen: str) -> None:
        scheduler = self._spawn("scheduler", "global_scheduler", listen, self._scheduler_args)
        self.scheduler = self._address(scheduler, listen)

    def _spawn(self, name: str, module: str, listen: str, args: list[str]) -> ServiceProcess:
        # The secret is passed in the environment, because all users can read command lines.
        environment = {**self._environment, "FAIRLEAD_SECRET": self.secret, "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        log = self._log_dir / f"{name}.log"
        process = ServiceProcess(name, module, ["--listen", listen, *args], environment, log)
        self.processes.append(process)
        self._starting.append(process)
        return process

    def _address(self, process: ServiceProcess, listen: str) -> str:
        while not (listening := process.log.lines("listening")):
            self._look()
        address = reached_at(listen, listening[0]["port"])
        self._started(process, f"listens on {address}")
        return address

    def _look(self) -> None:
        """Show the steps of the starting services and wait a moment; raises StackError when a service has ended."""
        self._check_alive()
        for process in self._starting:
            self._progress.show(process.name, process.log.step())
        time.sleep(POLL_SECONDS)

    def _started(self, process: ServiceProcess, result: str) -> None:
        self._starting.remove(process)
        self._progress.done(process.name, result)

    def _check_alive(self) -> None:
        for process in self.processes:
            process.check_alive()

    def _attached(self, admin: scheduler_pb2_grpc.AdminStub) -> set[str]:
        try:
            request = scheduler_pb2.StatusRequest()
            status = admin.Status(request, metadata=secret_metadata(self.secret), timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            raise StackError(f"the scheduler does not answer: {error}; logs: {self._log_dir}") from error
        return {member.worker for member in status.cluster.members}


def end_all(processes: Sequence[ServiceProcess]) -> None:
    """Send SIGTERM to all, the last one first, and kill those that have not ended after STOP_SECONDS."""
    deadline = time.monotonic() + STOP_SECONDS
    for process in reversed(processes):
        process.terminate()
    with Progress(sys.stderr) as progress:
        while time.monotonic() < deadline:
            running = [process.name for process in processes if process.status is None]
            if not running:
                break
            progress.show("stack", "ending", ", ".join(running))
            time.sleep(POLL_SECONDS)
    for process in processes:
        process.end(deadline)
