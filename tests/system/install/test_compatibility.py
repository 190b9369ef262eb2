"""The table of compatibility in docs/operations.md: services, workers and the SDK of 0.3 beside those of this version.

0.3 is taken from the history of this repository, and runs with the packages that are installed here.
"""

import io
import itertools
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.environment import variable
from tests.ports import own_address
from tests.services import DEADLINE, SECRET, SERVICES, Stack, eventually

ROOT = Path(__file__).parents[3]
FORMER = "93e96002f8e5f2dc12e8eac9b463607f16e24eec"  # the commit of 0.3.0
PACKAGES = ("fairlead", "serving", "gateway", "global_scheduler", "local_worker", "throttler")
SERVING = ("global_scheduler", "local_worker", "gateway")
MIXED = [mix for size in (1, 2) for mix in itertools.combinations(SERVING, size)]
CLIENT = """
import sys
from importlib.util import find_spec
from fairlead import SyncClient

with SyncClient(sys.argv[1]) as client:
    done = client.generate("Once upon a time", max_tokens=8, ignore_eos=True)
    streamed = list(client.stream("Once upon a time", max_tokens=8, ignore_eos=True))
print(done.usage.output_tokens, len(streamed) > 0, find_spec("fairlead").origin)
"""

pytestmark = pytest.mark.e2e


class Former:
    """The services and the SDK of 0.3 in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{folder / 'fairlead'}"}
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, module: str, log: Path, **settings: object) -> str:
        """Start a service; returns its address once it listens."""
        given = {"listen": own_address(), "secret": SECRET, **settings}
        own = {variable(SERVICES[module], name): str(value) for name, value in given.items()}
        with log.open("wb") as written:
            process = subprocess.Popen(
                [sys.executable, "-m", module], env={**self._environment, **own}, stderr=written, cwd=self.folder
            )
        self.processes.append(process)

        def port() -> int | None:
            assert process.poll() is None, log.read_text()
            lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
            return next((line["port"] for line in lines if line["message"] == "listening"), None)

        return f"127.0.0.1:{eventually(port, f'{module} listens')}"

    def run(self, *arguments: str) -> str:
        """Run Python; returns its output."""
        command = [sys.executable, *arguments]
        done = subprocess.run(
            command, env=self._environment, cwd=self.folder, capture_output=True, text=True, timeout=DEADLINE
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    archive = subprocess.run(["git", "archive", FORMER, *PACKAGES], cwd=ROOT, capture_output=True)
    if archive.returncode:
        pytest.skip(f"the history has no commit of 0.3.0: {archive.stderr.decode().strip()}")
    folder = tmp_path_factory.mktemp("former")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


@pytest.fixture
def former(unpacked: Path) -> Iterator[Former]:
    former = Former(unpacked)
    yield former
    for process in former.processes:
        process.terminate()
    assert [process.wait(DEADLINE) for process in former.processes] == [0] * len(former.processes)


@pytest.fixture
def current(tmp_path: Path) -> Iterator[Stack]:
    stack = Stack(tmp_path)
    yield stack
    stack.close()


def answers(former: Former, gateway: str) -> None:
    """Both versions of the SDK call `gateway`, and get whole answers."""
    tokens, streamed, origin = former.run("-c", CLIENT, gateway).split()
    assert (tokens, streamed, Path(origin).is_relative_to(former.folder)) == ("8", "True", True)
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, gateway], cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[:2] == ["8", "True"]


@pytest.mark.parametrize("of_0_3", MIXED, ids=" and ".join)
def test_services_and_sdk_of_0_3_work_beside_those_of_this_version(
    former: Former, current: Stack, tmp_path: Path, of_0_3: tuple[str, ...]
) -> None:
    def start(module: str, **settings: object) -> str:
        if module in of_0_3:
            return former.start(module, tmp_path / f"{module}.log", **settings)
        return current.start(module, **settings).address

    scheduler = start("global_scheduler")
    start("local_worker", engine="fake", model="m", name="w", scheduler=scheduler)
    answers(former, start("gateway", scheduler=scheduler, throttle="none"))
