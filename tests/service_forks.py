"""Forks of a process that has imported a service: most of a service's start is the import of its code.

`python -m gateway` takes 0.5 s of processor time until it listens, a fork 0.05 s, and the tests start hundreds of
services. A fork differs from `python -m` in nothing that it does: it has the environment, the standard error and the
working directory of the test that starts it, imports later what its configuration needs, and ends by `sys.exit`.
Workers over vLLM are forks of a process that has imported vLLM as well, which takes 10 s.
"""

import functools
import gc
import importlib
import os
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAUSE = 0.01  # seconds between two looks at whether a fork has ended


class ServiceForks:
    """The process that has imported `module`.app, and `engine` if it names a module, and forks; it ends with the one
    that started it."""

    def __init__(self, module: str, engine: str) -> None:
        self._connection, theirs = Pipe()
        self._one_at_a_time = threading.Lock()
        command = [sys.executable, "-m", __name__, str(theirs.fileno()), module, engine]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], cwd=ROOT)
        theirs.close()

    def ask(self, *request: Any) -> Any:
        """Return what one of the functions below returns: ("start", ...) or ("exit_status", ...)."""
        with self._one_at_a_time:
            self._connection.send(request)
            return self._connection.recv()


@functools.cache
def forks_of(module: str, engine: str) -> ServiceForks:
    """Return the one process of this process of the tests that forks the service."""
    return ServiceForks(module, engine)


class ServiceFork:
    """A service that a fork runs, with the methods of subprocess.Popen that tests need."""

    def __init__(self, module: str, environment: dict[str, str], log: Path) -> None:
        over_vllm = environment.get("FAIRLEAD_WORKER_ENGINE") == "vllm"
        self._forks = forks_of(module, "tests.vllm.imported" if over_vllm else "")
        self._exit_status: int | None = None
        self.pid: int = self._forks.ask("start", environment, os.getcwd(), log)

    def poll(self) -> int | None:
        """Return the exit status, or minus the number of the signal that ended it, or None while it runs."""
        if self._exit_status is None:
            self._exit_status = self._forks.ask("exit_status", self.pid)
        return self._exit_status

    def wait(self, seconds: float) -> int:
        """Return what `poll` returns at its end; raise TimeoutError if that is not within `seconds`."""
        end = time.monotonic() + seconds
        while (status := self.poll()) is None:
            if time.monotonic() > end:
                raise TimeoutError(f"process {self.pid} has not ended within {seconds} s")
            time.sleep(PAUSE)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process is known to have ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


def start(environment: dict[str, str], directory: str, log: Path) -> int:
    """Fork; return the process id of the fork, and 0 in the fork."""
    pid = os.fork()
    if pid == 0:
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(directory)
        with log.open("ab") as stderr:
            os.dup2(stderr.fileno(), sys.stderr.fileno())
    return pid


def exit_status(pid: int) -> int | None:
    """Return the exit status of a fork as subprocess.Popen.poll does."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def serve_requests(connection: Connection) -> bool:
    """Answer requests until there are no more; return whether this is a fork that has to become a service."""
    while True:
        try:
            name, *arguments = connection.recv()
        except EOFError:
            return False
        if name == "start":
            pid = start(*arguments)
            if pid == 0:
                connection.close()
                return True
            connection.send(pid)
        else:
            connection.send(exit_status(*arguments))


def main(descriptor: str, module: str, engine: str) -> int:
    """Import the service and fork it whenever that is asked for; in a fork, run it and return its exit status."""
    service = importlib.import_module(f"{module}.app")
    if engine:
        importlib.import_module(engine)
    gc.collect()
    gc.freeze()
    if not serve_requests(Connection(int(descriptor))):
        return 0
    status: int = service.main([])
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
