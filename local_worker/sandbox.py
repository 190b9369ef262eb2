"""Trial compilations of constraints in processes of their own, which can be ended at any moment.

How long llguidance compiles is not bounded by its own limits, and a thread cannot be stopped. What has been compiled
cannot be passed between processes; so a worker compiles once more what a trial has shown to be within the limits.
"""

import asyncio
import os
import pickle
import socket
import subprocess
import sys
import tempfile
from asyncio import Lock
from collections.abc import Callable

from local_worker.sandbox_process import COMPILED, Setup


class BeyondLimits(Exception):
    """A constraint that could not be compiled within the limits."""


class Sandbox:
    """The process that compiles on trial; it starts with the first constraint, and again if it is gone.

    All methods belong to the event loop.
    """

    def __init__(self, setup: Callable[[], Setup]) -> None:
        """Prepare to start a process with the result of `setup`, which is called on a thread."""
        self._make_setup = setup
        self._process: subprocess.Popen[bytes] | None = None
        self._commands: socket.socket | None = None
        self._starting = Lock()

    async def compile(self, source: str) -> str:
        """Compile `source`, which llguidance reads; return its error, empty if there is none.

        Raises BeyondLimits, and ConnectionError if the process has ended. A caller that is cancelled ends the
        compilation.
        """
        commands = await self._running()
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(commands, [b"\0"], [theirs.fileno()])
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            writer.write(source.encode())
            writer.write_eof()
            answer = await reader.read()
        except ConnectionError:
            answer = b""
        finally:
            writer.close()
        if not answer.startswith(COMPILED):
            if self._process is None or self._process.poll() is not None:
                raise ConnectionError("the process that compiles constraints has ended")
            raise BeyondLimits
        return answer.removeprefix(COMPILED).decode()

    async def _running(self) -> socket.socket:
        async with self._starting:
            if self._process is None or self._process.poll() is not None:
                self.close()
                self._process, self._commands = await asyncio.to_thread(self._start)
            assert self._commands is not None, "they begin and end together"
            return self._commands

    def _start(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair()
        with theirs, tempfile.TemporaryFile() as file:
            pickle.dump(tuple(self._make_setup()), file)
            file.seek(0)
            command = [sys.executable, "-m", "local_worker.sandbox_process", str(theirs.fileno())]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            return subprocess.Popen(command, stdin=file, pass_fds=[theirs.fileno()], env=environment), ours

    def close(self) -> None:
        """End the process; compilations that are under way end with the connections of those who wait for them."""
        if self._commands is not None:
            self._commands.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = self._commands = None
