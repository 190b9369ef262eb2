"""`fairlead trace` and `fairlead top` against a real stack, and who may ask."""

import asyncio
import re
from collections.abc import Iterator

import grpc
import pytest

from fairlead import Client
from fairlead.v1 import common_pb2, inference_pb2, inference_pb2_grpc
from tests.services import SECRET, Stack, eventually
from tests.unit.cli.commands import called

pytestmark = pytest.mark.e2e
ADMIN = "a secret for operators only"
INTERACTION = re.compile(r"interaction (\S+): client default/ann, app default, 2 calls, [\d,.]+ ms")


async def interact(address: str) -> str:
    async with Client(address, user="ann") as client, client.interaction() as interaction:
        await interaction.generate("plan", max_tokens=6, ignore_eos=True)
        await interaction.generate("act", max_tokens=6, ignore_eos=True)
        return interaction.id


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, str]]:
    """Gateway, scheduler, and the id of an interaction that was served."""
    stack = Stack(tmp_path_factory.mktemp("stack"), admin_secret=ADMIN)
    try:
        stack.worker("w0", model="tiny", engine="fake:0.01")
        gateway = stack.gateway(admin_secret=ADMIN)
        interaction = asyncio.run(interact(gateway.address))
        yield gateway.address, stack.scheduler.address, interaction
    finally:
        stack.close()


def test_a_trace_shows_where_the_time_went(served: tuple[str, str, str]) -> None:
    gateway, _, interaction = served
    done = called("trace", interaction, "--gateway", gateway, "--secret", ADMIN)
    assert done.returncode == 0, done.stderr
    assert INTERACTION.match(done.stdout)
    assert done.stdout.count("COMPLETED (length)") == 2
    assert "stage 0" in done.stdout
    assert "stage 1" in done.stdout
    times = re.findall(r"^  (\w+) +([\d.,]+) ms", done.stdout, re.MULTILINE)
    assert [name for name, _ in times] == ["admit", "select", "queue", "prefill", "decode", "total"] * 2
    for call in (times[:6], times[6:]):
        values = [float(value.replace(",", "")) for _, value in call]
        assert sum(values[:5]) == pytest.approx(values[5], rel=0.02)
        assert values[4] >= 50, "five steps of 10 ms"


def test_a_single_request_is_found_too(served: tuple[str, str, str]) -> None:
    gateway, _, interaction = served
    shown = called("trace", interaction, "--gateway", gateway, "--secret", ADMIN).stdout
    request = shown.splitlines()[2].split()[0]
    done = called("trace", request, "--gateway", gateway, "--secret", ADMIN)
    assert done.stdout.splitlines()[2].startswith(request)
    assert "1 calls" in done.stdout


def test_a_request_is_found_by_its_callers_id_and_says_which_app_was_named(served: tuple[str, str, str]) -> None:
    gateway, *_ = served
    request = inference_pb2.GenerateRequest(prompt=common_pb2.Prompt(text="hi"), app="agent")
    with grpc.insecure_channel(gateway) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        for user in ("ann", "bob"):
            list(stub.Generate(request, timeout=60, metadata=[("x-fairlead-user", user), ("x-request-id", "mine")]))
    shown = called("trace", "mine", "--gateway", gateway, "--secret", ADMIN).stdout
    for user in ("ann", "bob"):
        assert re.search(rf"request \w+: client default/{user}, app default \('agent' is unknown\), 1 calls", shown)
    assert shown.count(", caller's id mine\n") == 2


def test_an_unknown_interaction_is_reported_as_not_found(served: tuple[str, str, str]) -> None:
    done = called("trace", "unknown", "--gateway", served[0], "--secret", ADMIN)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "fairlead: no gateway remembers unknown\n")


@pytest.mark.parametrize("secret", [SECRET, "wrong"])
def test_only_the_admin_secret_opens(served: tuple[str, str, str], secret: str) -> None:
    gateway, scheduler, interaction = served
    for command in (
        ("trace", interaction, "--gateway", gateway),
        ("status", "--scheduler", scheduler),
        ("top", "--frames", "1", "--scheduler", scheduler),
        ("drain", "w0", "--scheduler", scheduler),
        ("flush", "w0", "--scheduler", scheduler),
    ):
        done = called(*command, "--secret", secret)
        assert done.returncode == 1
        assert done.stderr.startswith("fairlead: metadata x-fairlead-secret: missing or wrong")
        assert interaction not in done.stdout


@pytest.mark.parametrize("day", ["yesterday", "20261128", "2026-02-30", "2026-11-28T00:00:00Z", "1", "2026-W48-6"])
def test_usage_since_no_day_is_refused(served: tuple[str, str, str], day: str) -> None:
    """Days are compared as texts: another form would leave out calls, and say nothing."""
    done = called("usage", "--gateway", served[0], "--secret", ADMIN, "--since", day)
    assert done.returncode == 1
    assert done.stderr == f"fairlead: since: expected a day of UTC, as 2026-11-26, got {day!r}\n"


@pytest.mark.parametrize("day", ["", "0001-01-01", "9999-12-31"])
def test_usage_since_any_day_is_told(served: tuple[str, str, str], day: str) -> None:
    assert called("usage", "--gateway", served[0], "--secret", ADMIN, "--since", day).returncode == 0


@pytest.mark.parametrize("command", ["usage", "trace"])
def test_a_secret_and_an_address_that_no_call_can_carry_are_refused_by_name(command: str) -> None:
    arguments = [command, *(["id"] if command == "trace" else [])]
    done = called(*arguments, "--gateway", "127.0.0.1:1", "--secret", "a\nb")
    assert done.stderr == "fairlead: --secret: must be printable ASCII\n"
    for address in (" ", "host:port", "127.0.0.1:99999"):
        done = called(*arguments, "--gateway", address, "--secret", ADMIN)
        assert done.stderr.startswith("fairlead: address: expected host, host:port")
        assert done.stderr.endswith(f"got {address!r}\n")


def test_top_shows_users_and_workers(served: tuple[str, str, str]) -> None:
    command = ("top", "--scheduler", served[1], "--secret", ADMIN, "--frames", "2", "--every", "0.1")
    idle = re.compile(r"^w0 +0 +0 \.{10} 0% .* [\d.]+% serving$", re.MULTILINE)
    done = eventually(lambda: (shown := called(*command)) and idle.search(shown.stdout) and shown, "w0 is idle")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("backlogged") == 2, "in the first line of each frame"
    assert re.search(r"^default/ann ", done.stdout, re.MULTILINE)
    assert "\x1b" not in done.stdout, "it is not written to a terminal"


def test_status_says_which_admission_the_bound_is_for_and_who_placed_requests(served: tuple[str, str, str]) -> None:
    done = called("status", "--scheduler", served[1], "--gateway", served[0], "--secret", ADMIN)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^requests placed\n  by the scheduler +[1-9]\d*\n", done.stdout, re.MULTILINE)
    assert re.search(r"^  by a gateway, no scheduler led +0\n  not at all +0$", done.stdout, re.MULTILINE)
    seconds = r"(-|[\d,.]+)"
    assert re.search(rf"^w0 +tiny +\d+ +\d+ +[\d.]+ +{seconds} +{seconds} +serving$", done.stdout, re.MULTILINE)
    for level in ("tenant", "user"):
        row = rf"^w0 +{level} +[\d,]+/[\d,]+ +[\d.]+% +{seconds} +{seconds}$"
        assert re.search(row, done.stdout, re.MULTILINE)
    assert max(map(len, done.stdout.splitlines())) <= 80
    wide = called("status", "--scheduler", served[1], "--gateway", served[0], "--secret", ADMIN, "--wide").stdout
    assert re.search(r"^w0 +tiny .* [\d,]+/[\d,]+ +fake +dlpm .* reserve +serving$", wide, re.MULTILINE)
    assert "balance by worker" in wide
