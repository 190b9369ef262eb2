"""The processes in which callers' constraints are compiled and followed, which can be ended at any moment.

Nothing bounds how long llguidance compiles, and its masks can take longer than a step; a thread cannot be stopped, and
some of what the library does keeps Python's lock.
"""

import os
import pickle
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from threading import Lock

from local_worker.sandbox_process import Setup
from local_worker.vocabulary import Vocabulary

CPU_SECONDS = 1.0  # of one compilation or mask; those of honest callers take milliseconds
MEMORY_BYTES = 1 << 30  # of one process
PROGRAM = "from local_worker.sandbox_process import main; main()"
NICENESS = 10  # steps come first where they share a core
BEYOND_LIMITS = f"takes more than {CPU_SECONDS:g} s of processor time, or {MEMORY_BYTES >> 20} MiB"


class Sandbox:
    """The process from which the others are forked; it starts with the first constraint, and again if it is gone.

    Any thread may call its methods.
    """

    def __init__(self, vocabulary: Callable[[], Vocabulary]) -> None:
        """Prepare to start the process; `vocabulary` is called for it, and raises ValueError if there is none."""
        self._vocabulary = vocabulary
        self._process: subprocess.Popen[bytes] | None = None
        self._commands: socket.socket | None = None
        self._lock = Lock()

    @property
    def is_running(self) -> bool:
        """Whether the process runs, so that the others can be forked."""
        return self._process is not None and self._process.poll() is None

    def connect(self) -> tuple[socket.socket, Connection]:
        """Return a connection to a process of its own, and one without messages, with which the process ends.

        Raises ValueError if there is no vocabulary. It takes up to some seconds if the process does not run.
        """
        with self._lock:
            if not self.is_running or self._commands is None:
                self._end()
                self._start()
            assert self._commands is not None
            ours, theirs = socket.socketpair()
            life, end = socket.socketpair()
            with theirs, end:
                socket.send_fds(self._commands, [b"\0"], [theirs.fileno(), end.fileno()])
            return ours, Connection(life.detach())

    def _start(self) -> None:
        setup = Setup(self._vocabulary(), CPU_SECONDS, MEMORY_BYTES, NICENESS)
        self._commands, theirs = socket.socketpair()
        with theirs, tempfile.TemporaryFile() as file:
            pickle.dump(tuple(setup), file)
            file.seek(0)
            command = [sys.executable, "-c", PROGRAM, str(theirs.fileno())]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            self._process = subprocess.Popen(command, stdin=file, pass_fds=[theirs.fileno()], env=environment)

    def close(self) -> None:
        """End the process; the others end with their connections."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._commands is not None:
            self._commands.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = self._commands = None
