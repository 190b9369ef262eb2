"""A real redis-server for tests, and a wire to it that can be slow."""

import asyncio
import contextlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

DEADLINE = 20.0


class RedisServer:
    """On a Unix socket unless `options` say otherwise; keeps nothing on disk."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.socket = directory / "redis.sock"
        self._options = options or ("--port", "0")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def start(self) -> None:
        """Start empty, and wait until it answers."""
        binary = find_redis()
        with (self.directory / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    binary, "--unixsocket", str(self.socket), "--save", "", "--appendonly", "no",
                    "--dir", str(self.directory), *self._options,
                ],
                stdout=log,
            )  # fmt: skip
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            assert self._process.poll() is None, (self.directory / "redis.log").read_text()
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as link:
                link.connect(str(self.socket))
                return
            time.sleep(0.01)
        raise AssertionError("redis-server does not listen")

    def kill(self) -> None:
        """SIGKILL; does nothing to a dead one."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """It accepts connections and never answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


def find_redis() -> str:
    """The installed redis-server; installs Debian's where there is none and one may."""
    found = shutil.which("redis-server")
    if found is None and shutil.which("apt-get") is not None:
        install = "apt-get update -qq && apt-get install -y -qq --no-install-recommends redis-server"
        subprocess.run(["sh", "-c", install], check=False, capture_output=True)
        found = shutil.which("redis-server")
    if found is None:
        pytest.skip("redis-server cannot be had here")
    return found


class SlowWire:
    """A Unix socket in front of a server; each answer is held back `delay` seconds."""

    def __init__(self, path: Path, target: Path) -> None:
        self.path = path
        self.delay = 0.0
        self._target = target

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        async with await asyncio.start_unix_server(self._relay, str(self.path)):
            yield

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_unix_connection(str(self._target))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._copy(reader, up_writer, slow=False))
                tasks.create_task(self._copy(up_reader, writer, slow=True))
        except* OSError:
            pass
        finally:
            writer.close()
            up_writer.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, slow: bool) -> None:
        while data := await reader.read(65536):
            if slow and self.delay:
                await asyncio.sleep(self.delay)
            writer.write(data)
            await writer.drain()
        writer.close()
