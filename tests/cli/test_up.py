"""`fairlead up` and the commands that find it: real processes, and none left behind."""

import json
import os
import queue
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e
DEADLINE = 60


class Command:
    """`fairlead ...` of one test: its runtime folder and logs are the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("FAIRLEAD_")}
        self.environment["XDG_RUNTIME_DIR"] = str(folder)

    def run(self, *args: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "cli", *args], env=self.environment, capture_output=True, text=True, timeout=DEADLINE
        )

    def endpoint_files(self) -> list[Path]:
        return [path for path in self.folder.iterdir() if path.is_file()]


class Up:
    """A running `fairlead up`."""

    def __init__(self, command: Command, *args: str) -> None:
        logs = ["--log-dir", str(command.folder / "logs")]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cli", "up", "--engine", "fake", "--listen", "127.0.0.1:0", *logs, *args],
            env=command.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                self._lines.put(line)
        self._lines.put(None)

    def wait_for(self, word: str) -> str:
        said = []
        while (line := self._lines.get(timeout=DEADLINE)) is not None:
            said.append(line)
            if word in line:
                return line
        raise AssertionError(f"ended before it said {word!r}: {said}")

    def children(self) -> list[int]:
        """Process ids of the services."""
        task = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in task.read_text().split()]

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        status = self.process.wait(DEADLINE)
        self._reader.join()
        return status

    def rest(self) -> str:
        lines = []
        while (line := self._lines.get(timeout=DEADLINE)) is not None:
            lines.append(line)
        return "".join(lines)


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


@pytest.fixture
def up(command: Command) -> Iterator[Up]:
    """Two workers with the fake engine, ready."""
    running = Up(command, "--workers", "2")
    try:
        running.wait_for("ready")
        yield running
    finally:
        if running.process.poll() is None:
            running.end(signal.SIGTERM)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_other_commands_find_the_running_stack(command: Command, up: Up) -> None:
    generated = command.run("generate", "hello", "--max-tokens", "8", "--user", "ann")
    assert (generated.returncode, generated.stderr) == (0, "")
    assert len(generated.stdout.rstrip("\n")) == 8, "the fake engine's tokens are one character each"
    status = command.run("status")
    assert status.returncode == 0
    assert "worker-0" in status.stdout
    assert "worker-1" in status.stdout
    assert "default/ann" in status.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_ends_everything(command: Command, up: Up, number: int) -> None:
    children = up.children()
    assert len(children) == 4, "scheduler, two workers, gateway"
    assert up.end(number) == 0
    assert [pid for pid in children if alive(pid)] == []
    assert command.endpoint_files() == [], "nobody finds a stack that is gone"


def test_the_secret_is_for_this_user_only(command: Command, up: Up) -> None:
    [file] = command.endpoint_files()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for pid in up.children():
        assert b"secret" not in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_a_service_that_dies_ends_the_stack_and_is_named(command: Command, up: Up) -> None:
    children = up.children()
    [worker] = [pid for pid in children if b"worker-1" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(worker, signal.SIGKILL)
    assert up.process.wait(DEADLINE) == 1
    said = up.rest()
    assert "worker-1 ended" in said
    assert "listening" in said, "the end of its log"
    assert "Traceback" not in said
    assert [pid for pid in children if alive(pid)] == []


def test_a_service_that_refuses_its_configuration_is_named(command: Command) -> None:
    up = Up(command, "--workers", "1", "--worker-arg=--kv-tokens=17")
    assert up.process.wait(DEADLINE) == 1
    said = up.rest()
    assert "worker-0 ended" in said
    assert "kv_tokens: must be a positive multiple of block_tokens (16), got 17" in said
    assert command.endpoint_files() == []


@pytest.mark.parametrize(
    "args",
    [
        ("status", "--scheduler", "127.0.0.1:1", "--secret", "x" * 16),
        ("generate", "hello", "--gateway", "127.0.0.1:1"),
    ],
)
def test_nobody_listening_is_one_line(command: Command, args: tuple[str, ...]) -> None:
    failed = command.run(*args)
    assert failed.returncode == 1
    assert failed.stderr.startswith("fairlead: ")
    assert len(failed.stderr.splitlines()) == 1


@pytest.mark.parametrize("option", [("--temperature", "nan"), ("--user", "josé")])
def test_a_bad_value_is_one_line(command: Command, up: Up, option: tuple[str, str]) -> None:
    failed = command.run("generate", "hello", *option)
    assert failed.returncode in (1, 2)
    assert "Traceback" not in failed.stderr


@pytest.mark.parametrize("args", [(), ("unknown",), ("generate",), ("up", "--workers", "x")])
def test_wrong_usage(command: Command, args: tuple[str, ...]) -> None:
    assert command.run(*args).returncode == 2


def test_a_start_that_fails_leaves_the_running_stack_findable(command: Command, up: Up) -> None:
    [file] = command.endpoint_files()
    taken, logs = json.loads(file.read_text())["gateway"], str(command.folder / "second")
    second = command.run("up", "--engine", "fake", "--workers", "1", "--listen", taken, "--log-dir", logs)
    assert second.returncode == 1
    assert "gateway" in second.stderr
    assert "Traceback" not in second.stderr.split("ended with status")[0]
    assert command.run("status").returncode == 0


def test_a_value_that_fits_no_field_is_one_line(command: Command, up: Up) -> None:
    failed = command.run("generate", "hello", "--max-tokens", "-1")
    assert failed.returncode in (1, 2)
    assert "Traceback" not in failed.stderr


def test_no_workers_is_wrong_usage(command: Command) -> None:
    assert command.run("up", "--workers", "0").returncode == 2
