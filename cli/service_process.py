"""One service of a local stack as a child process: its log is a file, its readiness is what it says itself."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

POLL_SECONDS = 0.02
LAST_LINES = 12


class StackError(Exception):
    """A service could not be started or ended by itself; the message holds its last words."""


class ServiceProcess:
    """`python -m <module>` with its standard error in `log`."""

    def __init__(self, name: str, module: str, args: list[str], environment: dict[str, str], log: Path) -> None:
        self.name = name
        self.log = log
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

    def wait_for(self, message: str, deadline: float) -> dict[str, Any]:
        """The first log line with `message`; raises StackError when the process ends or the time is over."""
        while True:
            alive = self._process.poll() is None
            if found := self.lines(message):
                return found[0]
            if not alive:
                raise StackError(self.obituary())
            if time.monotonic() > deadline:
                raise StackError(f"{self.name} did not say {message!r} in time; its log is {self.log}")
            time.sleep(POLL_SECONDS)

    def lines(self, message: str) -> list[dict[str, Any]]:
        """The log's lines with `message`, as fields."""
        parsed = map(_parse, self.log.read_text(errors="replace").splitlines())
        return [fields for fields in parsed if fields.get("message") == message]

    def check_alive(self) -> None:
        """Raise StackError when the process has ended."""
        if self._process.poll() is not None:
            raise StackError(self.obituary())

    def obituary(self) -> str:
        """Which process ended how, with the end of its log."""
        lines = self.log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        return "\n".join([f"{self.name} ended with status {self._process.returncode}; the end of {self.log}:", *lines])

    def terminate(self) -> None:
        """Ask it to end (SIGTERM)."""
        if self._process.poll() is None:
            self._process.terminate()

    def end(self, deadline: float) -> None:
        """Wait until `deadline` for the end, then kill."""
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _parse(line: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except json.JSONDecodeError:  # no log line of ours, or one that is still being written
        return {}
    return fields if isinstance(fields, dict) else {}
