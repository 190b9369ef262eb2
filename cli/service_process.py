"""One service of a local stack as a child process with a log file, in which it reports that it is ready."""

import os
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

from cli.service_log import ServiceLog

POLL_SECONDS = 0.02


def ending_signals() -> list[signal.Signals]:
    """Return the signals that end a command which has started services: otherwise these would go on without it.

    SIGHUP, of a terminal that is closed, is among them unless it is ignored, as under `nohup`.
    """
    is_kept = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if is_kept else [signal.SIGHUP])]


@cache
def _lifeline() -> int:
    """Return the end for reading of a pipe that ends with this process."""
    reading, _ = os.pipe()
    return reading


class StackError(Exception):
    """The error for a service that could not be started, or that ended by itself. The message is one line."""


class ServiceProcess:
    """A process that runs `module`, writes its standard error to `log`, and ends if this process does."""

    def __init__(self, name: str, module: str, args: list[str], environment: dict[str, str], log: Path) -> None:
        self.name = name
        self.log = ServiceLog(log)
        command = [sys.executable, "-m", "cli.child", module, *args]
        with log.open("wb") as stderr:
            # In its own process group, because only the stack must receive Ctrl-C: it ends its children in order.
            self._process = subprocess.Popen(
                command,
                stdin=_lifeline(),
                stdout=stderr,
                stderr=stderr,
                env={**os.environ, **environment},
                process_group=0,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status, or minus the number of the signal that killed the process; None while it runs."""
        return self._process.poll()

    def wait_for(self, message: str, deadline: float) -> dict[str, Any]:
        """Return the first log line with `message`; raises StackError when the process ends or the deadline passes."""
        while True:
            alive = self.status is None
            if found := self.log.lines(message):
                return found[0]
            if not alive:
                raise StackError(self.obituary())
            if time.monotonic() > deadline:
                raise StackError(f"{self.name} did not log {message!r} in time; its log is {self.log.path}")
            time.sleep(POLL_SECONDS)

    def check_alive(self) -> None:
        """Raise StackError when the process has ended."""
        if self.status is not None:
            raise StackError(self.obituary())

    def obituary(self) -> str:
        """Return a line that says how and why the process ended."""
        status = self._process.returncode
        if status < 0:
            return f"{self.name} was killed by {signal.Signals(-status).name}; its log is {self.log.path}"
        return f"{self.name} ended with status {status}: {self.log.reason()}; its log is {self.log.path}"

    def terminate(self) -> None:
        """Send SIGTERM if the process runs."""
        if self.status is None:
            self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        self._process.kill()
        self._process.wait()

    def end(self, deadline: float) -> None:
        """Wait for the end until `deadline` (monotonic seconds), then kill the process."""
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
