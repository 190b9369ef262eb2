"""Real service processes for tests, waited for by their own words."""

import json
import queue
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

SECRET = "a-secret-for-tests-only"
START_SECONDS = 60


@dataclass
class ServiceProcess:
    """One `python -m <module>`; its structured log is read as it comes."""

    module: str
    process: "subprocess.Popen[str]"
    lines: "queue.Queue[dict[str, Any]]" = field(default_factory=queue.Queue)
    log: list[dict[str, Any]] = field(default_factory=list)
    port: int = 0

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    def wait_for(self, message: str) -> dict[str, Any]:
        """The next log line that says `message`."""
        while True:
            try:
                line = self.lines.get(timeout=START_SECONDS)
            except queue.Empty:
                raise AssertionError(f"{self.module} never said {message!r}; it said {self.log}") from None
            if line.get("message") == message:
                return line
            if line.get("message") == "<end of log>":
                raise AssertionError(f"{self.module} ended before it said {message!r}; it said {self.log}")

    def terminate(self) -> int:
        """SIGTERM; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(START_SECONDS)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(START_SECONDS)

    def read_log(self) -> None:
        """Until the process closes its standard error."""
        assert self.process.stderr is not None
        for text in self.process.stderr:
            try:
                line = json.loads(text)
            except json.JSONDecodeError:
                line = {"message": text.rstrip()}
            self.log.append(line)
            self.lines.put(line)
        self.lines.put({"message": "<end of log>"})


StartService = Callable[..., ServiceProcess]
