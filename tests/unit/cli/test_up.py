"""`fairlead up` and the commands that find it: real processes, and none left behind."""

import json
import os
import re
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from cli.stack import Stack
from tests.services import eventually
from tests.unit.cli.commands import Command, Running, alive, called
from tests.unit.gateway.test_tls import issue

pytestmark = pytest.mark.e2e


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


def started(command: Command) -> Iterator[Running]:
    """Two workers with the fake engine, ready."""
    running = command.up("--workers", "2")
    try:
        running.wait_for("ready: gateway")
        yield running
    finally:
        running.close()


@pytest.fixture
def up(command: Command) -> Iterator[Running]:
    """For a test that ends it."""
    yield from started(command)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Command, Running]]:
    """For tests that leave it as it is."""
    command = Command(tmp_path_factory.mktemp("shared"))
    for running in started(command):
        yield command, running


def test_other_commands_find_the_running_stack(shared: tuple[Command, Running]) -> None:
    command, _ = shared
    generated = command.run("generate", "hello", "--max-tokens", "8", "--user", "ann")
    assert generated.returncode == 0, generated.stderr
    assert len(generated.stdout.rstrip("\n")) == 8, "the fake engine's tokens are one character each"
    status = command.call("status", "--wide")
    assert status.returncode == 0
    assert "worker-0" in status.stdout
    assert "worker-1" in status.stdout
    assert " fake " in status.stdout
    # A worker reports several times a second, so that what it has just served is not there yet.
    eventually(lambda: "default/ann" in command.call("status").stdout, "the user's service is reported")


def test_the_address_of_the_page_is_printed_with_a_key_that_opens_it(shared: tuple[Command, Running]) -> None:
    _, up = shared
    if not any("watch: " in line for line in up.said):
        up.wait_for("watch: ")
    [line] = [line for line in up.said if "watch: " in line]
    address, _, key = line.removeprefix("watch: ").strip().partition("#key=")
    assert urlopen(f"{address}login", data=key.encode()).status == 204


def test_each_process_is_seen_on_its_way(shared: tuple[Command, Running]) -> None:
    _, up = shared
    said = "".join(up.said)
    assert "s] scheduler: listens on 127.0.0.1:" in said
    assert "s] gateway: listens on 127.0.0.1:" in said
    for worker in ("worker-0", "worker-1"):
        assert said.index(f"s] {worker}: starting") < said.index(f"s] {worker}: ready")


def test_a_worker_that_has_drained_leaves_and_the_others_go_on(command: Command, up: Running) -> None:
    assert command.run("drain", "worker-1").returncode == 0
    assert up.wait_for("drained") == "worker-1 has drained and left; 1 worker left\n"
    assert command.call("generate", "hello", "--max-tokens", "4").returncode == 0
    assert command.run("drain", "worker-0").returncode == 0
    assert up.ended() == 0
    assert up.rest().splitlines()[0] == "worker-0 has drained and left; 0 workers left"
    assert command.endpoint_files() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_commands_find_the_newest_stack_that_runs(shared: tuple[Command, Running], number: int) -> None:
    command, _ = shared
    second = command.up("--workers", "1", logs="second")
    try:
        second.wait_for("ready: gateway")
        assert "worker-1" not in command.call("status").stdout, "the second has one worker"
        second.process.send_signal(number)
        second.process.wait()
        assert "worker-1" in command.call("status").stdout, "the first is found again"
        assert len(command.endpoint_files()) == 1
    finally:
        second.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_signal_ends_everything(command: Command, up: Running, number: int) -> None:
    children = up.children()
    assert len(children) == 4, "scheduler, two workers, gateway"
    assert up.end(number) == 0
    assert [pid for pid in children if alive(pid)] == []
    assert command.endpoint_files() == [], "nobody finds a stack that is gone"


def test_services_end_with_a_parent_that_is_killed(command: Command, up: Running) -> None:
    children = up.children()
    assert len(children) == 4
    up.process.kill()
    eventually(lambda: not any(map(alive, children)), "nobody is left who holds ports")


def test_the_secret_is_for_this_user_only(shared: tuple[Command, Running]) -> None:
    command, up = shared
    [file] = command.endpoint_files()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for pid in up.children():
        assert b"secret" not in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_a_service_that_dies_ends_the_stack_and_is_named(command: Command, up: Running) -> None:
    children = up.children()
    [worker] = [pid for pid in children if b"worker-1" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(worker, signal.SIGKILL)
    assert up.ended() == 1
    last = up.rest().splitlines()[-1]
    assert last == f"fairlead: worker-1 was killed by SIGKILL; its log is {command.folder / 'logs' / 'worker-1.log'}"
    assert [pid for pid in children if alive(pid)] == []


def test_a_service_that_refuses_its_configuration_is_named(command: Command) -> None:
    up = command.up("--workers", "1", "--worker-arg=--kv-tokens=17")
    assert up.ended() == 1
    last = up.rest().splitlines()[-1]
    assert last.startswith("fairlead: worker-0 ended with status ")
    assert ": kv_tokens: must be a positive multiple of block_tokens (16), got 17; its log is " in last
    assert command.endpoint_files() == []


def test_a_gateway_that_speaks_no_tls_is_one_line(shared: tuple[Command, Running]) -> None:
    command, _ = shared
    [file] = command.endpoint_files()
    failed = command.run("generate", "hello", "--gateway", f"https://{json.loads(file.read_text())['gateway']}")
    assert failed.returncode == 1
    assert failed.stderr.startswith("fairlead: ")
    assert len(failed.stderr.splitlines()) == 1


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
def test_a_bad_value_is_one_line(shared: tuple[Command, Running], option: tuple[str, str]) -> None:
    command, _ = shared
    failed = command.call("generate", "hello", *option)
    assert failed.returncode in (1, 2)
    assert "Traceback" not in failed.stderr


@pytest.mark.parametrize("args", [("unknown",), ("generate", "x", "--raw", "--system", "y"), ("up", "--workers", "x")])
def test_wrong_usage(command: Command, args: tuple[str, ...]) -> None:
    assert command.call(*args).returncode == 2


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (("--envoy", "--model", "x"), "--model: only without --envoy"),
        (("--envoy", "--page-listen", ""), "--page-listen: only without --envoy"),
        (("--limiter-arg=--x",), "--limiter-arg: only with --envoy"),
    ],
)
def test_options_of_what_is_not_started_are_refused(command: Command, args: tuple[str, ...], reason: str) -> None:
    done = command.call("up", *args)
    assert done.returncode == 2
    assert done.stderr.rstrip().endswith(f"error: {reason}")


def test_a_start_that_fails_leaves_the_running_stack_findable(shared: tuple[Command, Running]) -> None:
    command, _ = shared
    [file] = command.endpoint_files()
    taken, logs = json.loads(file.read_text())["gateway"], str(command.folder / "second")
    ports = ["--listen", taken, "--http-listen", "", "--page-listen", ""]
    second = command.run("up", "--engine", "fake", "--workers", "1", *ports, "--log-dir", logs)
    assert second.returncode == 1
    said = rf"fairlead: --listen: cannot listen on {taken}: .* in use: process \d+ \(.*cli.child gateway .*\) .*there"
    assert re.fullmatch(said, second.stderr.splitlines()[-1])
    assert command.call("status").returncode == 0


def test_a_value_that_fits_no_field_is_one_line(shared: tuple[Command, Running]) -> None:
    command, _ = shared
    failed = command.call("generate", "hello", "--max-tokens", "-1")
    assert failed.returncode in (1, 2)
    assert "Traceback" not in failed.stderr


@pytest.mark.parametrize("workers", ["0", "9999999999"])
def test_a_number_of_workers_that_no_pool_has_is_wrong_usage(workers: str, command: Command) -> None:
    refused = command.call("up", "--workers", workers)
    assert refused.returncode == 2
    assert "--workers" in refused.stderr.splitlines()[-1]


def test_with_tls_the_addresses_to_open_are_https(tmp_path: Path) -> None:
    chain, key = issue(tmp_path)
    stack = Stack(
        workers=1,
        log_dir=tmp_path,
        model="fake",
        engine="fake",
        http_listen="127.0.0.1:0",
        page_listen="127.0.0.1:0",
        gateway_args=["--tls", f"{chain},{key}"],
    )
    try:
        stack.launch()
        assert stack.http.startswith("https://127.0.0.1:")
        assert stack.page.startswith("https://127.0.0.1:")
    finally:
        stack.stop()


@pytest.mark.parametrize("host", ["[::1]", "127.0.0.2"])
def test_the_addresses_to_open_are_those_that_it_listens_on(tmp_path: Path, host: str) -> None:
    listen = f"{host}:0"
    stack = Stack(
        workers=1,
        log_dir=tmp_path,
        model="fake",
        engine="fake",
        listen=listen,
        http_listen=listen,
        page_listen=listen,
    )
    try:
        stack.launch()
        assert stack.gateway.startswith(f"{host}:")
        assert stack.http.startswith(f"http://{host}:")
        assert urlopen(stack.page).status == 200
    finally:
        stack.stop()


@pytest.mark.parametrize(("folder", "reason"), [("file", "File exists"), ("file/logs", "Not a directory")])
def test_a_folder_for_logs_that_cannot_be_made_is_refused(tmp_path: Path, folder: str, reason: str) -> None:
    (tmp_path / "file").touch()
    log_dir = tmp_path / folder
    done = called("up", "--engine", "fake", "--log-dir", str(log_dir))
    assert (done.returncode, done.stderr) == (1, f"fairlead: --log-dir: cannot make {log_dir}: {reason}\n")


@pytest.mark.parametrize(
    ("option", "address"),
    [("--listen", ""), ("--listen", "7000"), ("--http-listen", "127.0.0.1"), ("--page-listen", "::1:0")],
)
def test_a_wrong_address_is_refused_before_anything_starts(command: Command, option: str, address: str) -> None:
    done = command.call("up", "--engine", "fake", option, address)
    expected = "expected host:port, an IPv6 host in brackets, port at most 65535"
    assert (done.returncode, done.stderr) == (1, f"fairlead: {option}: {expected}, got {address!r}\n")
