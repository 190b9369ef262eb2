"""`fairlead ...` with a runtime folder that no other test sees, in processes of its own or in that of the test."""

import contextlib
import io
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from cli.__main__ import main

DEADLINE = 200  # seconds: of what never comes
CHECKOUT = (sys.executable, "-m", "cli")


def alive(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def called(*args: str) -> "subprocess.CompletedProcess[str]":
    """What `fairlead` with `args` says in this process: most of a process of its own is 0.5 s of imports."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(args)
        except SystemExit as end:  # of a wrong usage
            status = int(end.code or 0)
    return subprocess.CompletedProcess(args, status, out.getvalue(), err.getvalue())


class Running:
    """A command that runs; what it says on both streams, line by line."""

    def __init__(self, command: Sequence[str | Path], environment: dict[str, str], cwd: Path | None) -> None:
        self.process = subprocess.Popen(
            command,
            env=environment,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.said: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                self._lines.put(line)
        self._lines.put(None)

    def wait_for(self, words: str) -> str:
        """The first line, of those not waited for yet, that has these words."""
        while (line := self._lines.get(timeout=DEADLINE)) is not None:
            self.said.append(line)
            if words in line:
                return line
        raise AssertionError(f"ended before it said {words!r}: {self.said}")

    def rest(self) -> str:
        """What it says until it ends."""
        lines = []
        while (line := self._lines.get(timeout=DEADLINE)) is not None:
            lines.append(line)
        return "".join(lines)

    def children(self) -> list[int]:
        """Process ids."""
        task = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in task.read_text().split()]

    def end(self, number: int) -> int:
        """Send a signal; returns the exit status."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        """The exit status, once it has ended."""
        status = self.process.wait(DEADLINE)
        self._reader.join()
        return status

    def close(self) -> None:
        """End it, if it still runs."""
        self.end(signal.SIGTERM)


class Command:
    """`fairlead` for one test, with a runtime folder and logs of its own. It runs in `cwd`; None: as pytest does."""

    def __init__(self, folder: Path, program: Sequence[str | Path] = CHECKOUT, cwd: Path | None = None) -> None:
        self.folder = folder
        self._program = program
        self._cwd = cwd
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("FAIRLEAD_")}
        self.environment["XDG_RUNTIME_DIR"] = str(folder)

    def run(self, *args: str, text: str = "") -> "subprocess.CompletedProcess[str]":
        """With `text` on its standard input."""
        return subprocess.run(
            [*self._program, *args],
            env=self.environment,
            cwd=self._cwd,
            capture_output=True,
            text=True,
            input=text,
            timeout=DEADLINE,
        )

    def call(self, *args: str) -> "subprocess.CompletedProcess[str]":
        """As `run`, in this process."""
        with pytest.MonkeyPatch.context() as patched:
            for key in os.environ.keys() - self.environment.keys():
                patched.delenv(key)
            patched.setenv("XDG_RUNTIME_DIR", str(self.folder))
            return called(*args)

    def start(self, *args: str) -> Running:
        """Without waiting for its end."""
        return Running([*self._program, *args], self.environment, self._cwd)

    def up(self, *args: str, logs: str = "logs") -> Running:
        """`fairlead up` with the fake engine and a free port."""
        return self.up_with("--engine", "fake", *args, logs=logs)

    def up_with(self, *args: str, logs: str = "logs") -> Running:
        """`fairlead up` with free ports."""
        folder = str(self.folder / logs)
        ports = ["--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--page-listen", "127.0.0.1:0"]
        return self.start("up", *ports, "--log-dir", folder, *args)

    def endpoint_files(self) -> list[Path]:
        """Of the stacks that can be found."""
        return [path for path in self.folder.iterdir() if path.is_file()]
