"""The served engine as a process that tests start, kill and start again on the same ports."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tests.ports import free_ports
from tests.services import eventually

ROOT = Path(__file__).parents[3]


class EngineProcess:
    """`options` are its flags; with `events` it publishes them."""

    def __init__(self, log: Path, *, events: bool = True, **options: object) -> None:
        self.port, published, replayed = free_ports(3)
        self._log = log
        self.events, self.replay = f"tcp://127.0.0.1:{published}", f"tcp://127.0.0.1:{replayed}"
        flags = {"port": self.port, **({"events": self.events, "replay": self.replay} if events else {}), **options}
        self._flags = [text for name, value in flags.items() for text in (f"--{name.replace('_', '-')}", str(value))]
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", "tests.fakes.served_engine", *self._flags]
            self._process = subprocess.Popen(command, cwd=ROOT, stderr=log)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def metric(self, name: str) -> float:
        """The value of one metric, once the engine serves."""
        found = re.search(rf"^{name}(?:{{.*}})? (\S+)$", eventually(self._metrics, "the engine serves"), re.MULTILINE)
        assert found is not None
        return float(found[1])

    def _metrics(self) -> str:
        try:
            with urlopen(f"http://{self.address}/metrics") as answer:
                text: str = answer.read().decode()
                return text
        except URLError:
            return ""
