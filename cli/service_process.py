"""One service of a local stack as a child process: its log is a file, its readiness is what it says itself."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from cli.service_log import ServiceLog

POLL_SECONDS = 0.02


class StackError(Exception):
    """A service could not be started or ended by itself; the message says why, in one line."""


class ServiceProcess:
    """`python -m <module>` with its standard error in `log`."""

    def __init__(self, name: str, module: str, args: list[str], environment: dict[str, str], log: Path) -> None:
        self.name = name
        self.log = ServiceLog(log)
        command = [sys.executable, "-m", module, *args]
        with log.open("wb") as stderr:
            # A process group of its own: Ctrl-C reaches the stack, which ends its children in order.
            self._process = subprocess.Popen(
                command, stderr=stderr, stdin=subprocess.DEVNULL, env={**os.environ, **environment}, process_group=0
            )

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Its exit status, or minus the signal that killed it; None while it runs."""
        return self._process.poll()

    def wait_for(self, message: str, deadline: float) -> dict[str, Any]:
        """The first log line with `message`; raises StackError when the process ends or the time is over."""
        while True:
            alive = self.status is None
            if found := self.log.lines(message):
                return found[0]
            if not alive:
                raise StackError(self.obituary())
            if time.monotonic() > deadline:
                raise StackError(f"{self.name} did not say {message!r} in time; its log is {self.log.path}")
            time.sleep(POLL_SECONDS)

    def check_alive(self) -> None:
        """Raise StackError when the process has ended."""
        if self.status is not None:
            raise StackError(self.obituary())

    def obituary(self) -> str:
        """Which process ended how and why."""
        status = self._process.returncode
        if status < 0:
            return f"{self.name} was killed by {signal.Signals(-status).name}; its log is {self.log.path}"
        return f"{self.name} ended with status {status}: {self.log.reason()}; its log is {self.log.path}"

    def terminate(self) -> None:
        """Ask it to end (SIGTERM)."""
        if self.status is None:
            self._process.terminate()

    def end(self, deadline: float) -> None:
        """Wait until `deadline` for the end, then kill."""
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
