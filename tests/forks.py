"""Forks of a process that has imported a program: most of a program's start is the import of its code.

`python -m gateway` takes 0.5 s of processor time until it listens, a fork 0.05 s, and the tests start hundreds of
services. A fork differs from `python -m` in nothing that it does: it has the environment, the standard error and the
working directory of the test that starts it, imports later what its configuration needs, and ends by `sys.exit`.
Workers that compute with transformers or vLLM are forks of processes that have imported these as well, which takes 3
and 10 s. So are the programs that call the gateway with clients of others. All processes of a run share one such
process for each program.
"""

import ctypes
import errno
import gc
import importlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PR_SET_PDEATHSIG = 1  # prctl: the signal that a process gets when its parent ends
PAUSE = 0.01  # seconds between two looks at whether a fork has ended
# Of the run: its processes are forks of the one that imports this module when it collects the tests. No process writes
# to the pipe; it is closed when the last process of the run has ended.
RUN = os.getpid()
RUN_ENDS, _OPEN = os.pipe()
Arguments = tuple[Sequence[str], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Program:
    """What `python` runs: `main` of the module `entry` with arguments. Its process has imported `imports` as well."""

    entry: str
    imports: str = ""
    python: tuple[str, ...] = (sys.executable,)  # with its options


class Forks:
    """The process that has imported a program and forks until the run ends."""

    def __init__(self, program: Program) -> None:
        self._one_at_a_time = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        address = f"\0fairlead-tests-{RUN}-{program.entry}-{program.imports}"  # of no file: it ends with the process
        while True:
            client = socket.socket(socket.AF_UNIX)
            try:
                client.connect(address)
            except ConnectionRefusedError:
                client.close()
                self._start(address, program)
            else:
                self._connection = Connection(client.detach())
                return

    def _start(self, address: str, program: Program) -> None:
        """Start the process and return when it listens. Where another one listens already, it ends at once."""
        arguments = ["-m", __name__, address[1:], str(RUN_ENDS), program.entry, program.imports]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # threads do not survive a fork
        self._process = subprocess.Popen(
            [*program.python, *arguments], pass_fds=[RUN_ENDS], cwd=ROOT, env=environment, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        with self._process.stdout as listening:
            listening.readline()

    def ask(self, *request: Any) -> Any:
        """Return what one of the functions below returns: ("start", ...) or ("exit_status", ...)."""
        with self._one_at_a_time:
            self._connection.send(request)
            return self._connection.recv()


_known: dict[Program, Forks] = {}
_one_starts = threading.Lock()  # a second connection of this process, and its process, would be left to the collector


def forks_of(program: Program) -> Forks:
    """Return the one process of the run that forks the program."""
    with _one_starts:
        if program not in _known:
            _known[program] = Forks(program)
        return _known[program]


class Fork:
    """A process that runs a program with arguments, with the methods of subprocess.Popen that tests need.

    `constants` are arguments that `main` takes by name.
    """

    def __init__(
        self,
        program: Program,
        arguments: Sequence[str],
        environment: dict[str, str],
        stdout: Path,
        stderr: Path,
        **constants: object,
    ) -> None:
        self._forks = forks_of(program)
        self._exit_status: int | None = None
        self.pid: int = self._forks.ask("start", (arguments, constants), environment, os.getcwd(), stdout, stderr)

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


def start(environment: dict[str, str], directory: str, stdout: Path, stderr: Path) -> int:
    """Fork; return the process id of the fork, and 0 in the fork. It is killed when this process ends, with the run."""
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # which ended before
            os.kill(os.getpid(), signal.SIGKILL)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(directory)
        for path, stream in ((stdout, sys.stdout), (stderr, sys.stderr)):
            with path.open("ab") as file:
                os.dup2(file.fileno(), stream.fileno())
    return pid


def exit_status(pid: int) -> int | None:
    """Return the exit status of a fork as subprocess.Popen.poll does."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def serve_requests(listener: socket.socket, run_ends: int) -> Arguments | None:
    """Answer requests; return None when the run ends, and in a fork the arguments of the program."""
    connections: list[Connection] = []
    while True:
        for ready in wait([run_ends, listener, *connections]):
            if ready == run_ends:
                return None
            if isinstance(ready, socket.socket):
                connections.append(Connection(ready.accept()[0].detach()))
            elif isinstance(ready, Connection):
                arguments = answer(ready, connections)
                if arguments is not None:
                    return arguments


def answer(connection: Connection, connections: list[Connection]) -> Arguments | None:
    """Answer one request, or drop a connection that was closed; in a fork return the arguments of the program."""
    try:
        name, *values = connection.recv()
    except EOFError:
        connections.remove(connection)
        connection.close()
        return None
    if name == "exit_status":
        connection.send(exit_status(*values))
        return None
    arguments: Arguments
    arguments, *surroundings = values
    pid = start(*surroundings)
    if pid == 0:
        for each in connections:
            each.close()
        return arguments
    connection.send(pid)
    return None


def main(address: str, run_ends: str, entry: str, imports: str) -> int:
    """Import the program and fork it whenever that is asked for; in a fork, run it and return its exit status."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(f"\0{address}")
    except OSError as error:
        if error.errno == errno.EADDRINUSE:  # a process of another test process was first
            return 0
        raise
    listener.listen()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # says to the test process that connections wait from now on
    program = importlib.import_module(entry)
    if imports:
        importlib.import_module(imports)
    gc.collect()
    gc.freeze()
    with listener:
        arguments = serve_requests(listener, int(run_ends))
    if arguments is None:
        return 0
    given, constants = arguments
    status: int = program.main(given, **constants)
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
