"""Real services for tests: each a process on a free port, waited for by what it logs."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from fairlead.v1 import inference_pb2, inference_pb2_grpc, scheduler_pb2, scheduler_pb2_grpc
from serving.environment import ServiceName, variable
from serving.rpc.channel import secret_metadata
from tests.forks import Fork, Program
from tests.ports import own_address

SECRET = "a secret for tests only"
DEADLINE = 120.0
# Seconds between two looks: soon for what is about to happen, seldom for what takes a service's start.
SHORTEST_PAUSE = 0.01
LONGEST_PAUSE = 0.1
SERVICES = {
    "gateway": ServiceName.GATEWAY,
    "global_scheduler": ServiceName.SCHEDULER,
    "endpoint_picker": ServiceName.PICKER,
    "local_worker": ServiceName.WORKER,
    "engine_adapter": ServiceName.ADAPTER,
    "throttler": ServiceName.THROTTLER,
    "tests.system.agents": ServiceName.WORKER,
}

# Of configurations: what no option sets.
CONSTANTS = {
    "client_requests",
    "connection_seconds",
    "held_outputs_mib",
    "max_streams_per_client",
    "max_waiting",
    "output_rate",
    "reader_seconds",
    "request_seconds",
    "response_store_seconds",
    "step_timeout",
    "waiting_prompts_mib",
}
# What workers import beside their own code.
ENGINES = {"transformers": "local_worker.engine.runner", "vllm": "tests.system.vllm.imported"}


def eventually(condition: Callable[[], Any], what: str) -> Any:
    """The first true value of `condition`; fails after a generous deadline."""
    end, pause = time.monotonic() + DEADLINE, SHORTEST_PAUSE
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
    raise AssertionError(f"not within {DEADLINE} s: {what}")


class Process:
    """A service in a process of its own; its structured log is its interface to tests."""

    def __init__(self, module: str, log: Path, settings: dict[str, object], imports: str = "") -> None:
        self._log = log
        options = {key: value for key, value in settings.items() if key not in CONSTANTS}
        environment = {variable(SERVICES[module], key): str(value) for key, value in options.items()}
        log.touch()
        program = Program(f"{module}.app", imports or ENGINES.get(str(settings.get("engine")).partition(":")[0], ""))
        constants = {key: value for key, value in settings.items() if key in CONSTANTS}
        self._fork = Fork(program, [], {**os.environ, **environment}, log, log, **constants)

    @property
    def log(self) -> str:
        """All that it wrote, whatever form it has."""
        return self._log.read_text()

    def lines(self) -> list[dict[str, Any]]:
        """Every complete log line so far."""
        complete = self.log.rpartition("\n")[0].splitlines()
        return [json.loads(line) for line in complete if line.startswith("{")]

    def logged(self, message: str) -> list[dict[str, Any]]:
        """The lines with this message."""
        return [line for line in self.lines() if line["message"] == message]

    def wait_for(self, message: str) -> dict[str, Any]:
        """The first line with this message."""
        lines: list[dict[str, Any]] = eventually(lambda: self.logged(message), f"{message!r} in {self._log}")
        return lines[0]

    @property
    def address(self) -> str:
        """Where it listens; waits until it does."""

        def listening() -> list[dict[str, Any]]:
            assert self._fork.poll() is None, self.log
            return self.logged("listening")

        return f"127.0.0.1:{eventually(listening, 'the service listens')[0]['port']}"

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._fork.pid

    def wait(self) -> int:
        """Wait until it has ended; returns the exit status."""
        return self._fork.wait(DEADLINE)

    def begin_peak(self) -> None:
        """`peak` counts from now on."""
        Path(f"/proc/{self._fork.pid}/clear_refs").write_text("5")

    @property
    def peak(self) -> int:
        """The most memory that it has had resident since `begin_peak`, in MiB."""
        return self._memory("VmHWM")

    @property
    def resident(self) -> int:
        """The memory that it has resident, in MiB."""
        return self._memory("VmRSS")

    @property
    def cpu_seconds(self) -> float:
        """The processor time of its threads so far."""
        threads = Path(f"/proc/{self._fork.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

    def _memory(self, what: str) -> int:
        status = Path(f"/proc/{self._fork.pid}/status").read_text()
        return int(status.partition(f"{what}:")[2].split()[0]) // 1024

    def pause(self) -> None:
        """SIGSTOP: it stands still and knows nothing of it."""
        self._fork.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._fork.send_signal(signal.SIGCONT)

    def begin_kill(self) -> None:
        """SIGKILL: no goodbye."""
        self._fork.send_signal(signal.SIGKILL)

    def kill(self) -> None:
        """SIGKILL; waits until it has ended."""
        self.begin_kill()
        self._fork.wait(DEADLINE)

    def begin_terminate(self) -> None:
        """SIGTERM."""
        self._fork.send_signal(signal.SIGTERM)

    def terminate(self) -> int:
        """SIGTERM; returns the exit status."""
        self.begin_terminate()
        return self._fork.wait(DEADLINE)


class Stack:
    """The processes of one cluster.

    `metrics` is the address of every service's Prometheus endpoint, and `imports` a module that they import beside.
    """

    def __init__(self, directory: Path, *, metrics: str = "", imports: str = "", **scheduler: object) -> None:
        self._metrics = metrics
        self._imports = imports
        self.directory = directory
        self._processes: list[Process] = []
        self.scheduler = self.start("global_scheduler", **scheduler)
        self.schedulers = [self.scheduler]
        self.workers: dict[str, Process] = {}
        self._models: dict[str, int] = {}  # how many each worker serves

    @property
    def addresses(self) -> str:
        """Every scheduler's."""
        return ",".join(scheduler.address for scheduler in self.schedulers)

    def start(self, module: str, **settings: object) -> Process:
        """Start one more process; settings are its configuration."""
        log = self.directory / f"{len(self._processes)}-{module}.log"
        given = {"listen": own_address(), "secret": SECRET, "metrics": self._metrics, **settings}
        process = Process(module, log, given, self._imports)
        self._processes.append(process)
        return process

    def worker(self, name: str, **settings: object) -> None:
        """Start a worker with the fake engine."""
        self._models[name] = 1 + str(settings.get("model", "")).count(",") + str(settings.get("lora", "")).count("=")
        self.workers[name] = self.start(
            "local_worker", **{"name": name, "engine": "fake", "scheduler": self.addresses, **settings}
        )

    def adapter(self, name: str, **settings: object) -> None:
        """Start an adapter beside an engine."""
        self._models[name] = 1
        self.workers[name] = self.start("engine_adapter", **{"name": name, "scheduler": self.addresses, **settings})

    def replace_worker(self, name: str, **settings: object) -> None:
        """Kill one, and start another of its name."""
        self.workers[name].kill()
        self.worker(name, **settings)

    def restart_scheduler(self) -> None:
        """Kill the only one, and start another where it listened."""
        address = self.scheduler.address
        self.scheduler.kill()
        self.scheduler = self.start("global_scheduler", listen=address)
        self.schedulers = [self.scheduler]

    def gateway(self, **settings: object) -> Process:
        """Start a gateway and wait until it knows every worker."""
        gateway = self.start("gateway", **{"scheduler": self.addresses, **settings})
        with grpc.insecure_channel(gateway.address) as channel:
            self.await_workers(inference_pb2_grpc.InferenceStub(channel))
        return gateway

    def await_workers(self, stub: inference_pb2_grpc.InferenceStub, number: int | None = None) -> None:
        """Wait until the gateway behind `stub` knows `number` workers and models, or all of them."""
        wanted = sum(self._models[name] for name in self.workers) if number is None else number

        def known() -> bool:
            models = stub.ListModels(inference_pb2.ListModelsRequest(), wait_for_ready=True).models
            return sum(model.workers for model in models) == wanted

        eventually(known, f"the gateway knows {wanted} workers")

    def status(self) -> scheduler_pb2.StatusResponse:
        """What the scheduler knows."""
        with grpc.insecure_channel(self.scheduler.address) as channel:
            stub = scheduler_pb2_grpc.AdminStub(channel)
            return stub.Status(scheduler_pb2.StatusRequest(), metadata=secret_metadata(SECRET))

    def requests(self) -> int:
        """How many requests are running or waiting at workers."""
        return sum(member.load.running + member.load.waiting for member in self.status().cluster.members)

    def close(self) -> None:
        """Kill everything."""
        for process in self._processes:
            process.kill()


StartService = Callable[..., Process]
