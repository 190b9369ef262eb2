"""A real Redis of a test's own, which can be killed, paused and started anew, empty."""

import shutil
import signal
import subprocess
from pathlib import Path

import redis

from tests.lock import exclusively
from tests.services import eventually


def installed() -> str:
    """The path of redis-server, from the distribution's package if it is not there yet."""
    if shutil.which("redis-server") is None:
        with exclusively("apt"):
            subprocess.run(["apt-get", "update", "-qq"], check=True)
            subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "redis-server"], check=True)
    path = shutil.which("redis-server")
    assert path is not None, "redis-server is not installed, and the package brings none"
    return path


class RedisServer:
    """Listens on a Unix socket and writes nothing to disk; `options` are redis-server's."""

    def __init__(self, directory: Path, *options: str) -> None:
        self._directory = directory
        self._options = options
        self._socket = directory / "redis.sock"
        self.url = f"unix://{self._socket}"
        self.start()

    def start(self) -> None:
        """Start it, empty."""
        options = ["--port", "0", "--unixsocket", str(self._socket), "--save", "", "--appendonly", "no", *self._options]
        self._popen = subprocess.Popen(
            [installed(), *options, "--dir", str(self._directory)], stdout=subprocess.DEVNULL
        )
        self.client = redis.Redis.from_url(self.url)
        eventually(self._answers, "Redis answers")

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.ConnectionError:
            return False

    def kill(self) -> None:
        """SIGKILL: all is forgotten."""
        self.client.close()
        self._popen.kill()
        self._popen.wait()

    def pause(self) -> None:
        """SIGSTOP: connections stand, nothing answers."""
        self._popen.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._popen.send_signal(signal.SIGCONT)
