"""One environment configures all services, and what is wrong ends each of them with one line and status 2."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import endpoint_picker.app
import engine_adapter.app
import gateway.app
import global_scheduler.app
import local_worker.app
import throttler.app
from tests.services import SECRET, SERVICES, Stack

MAINS = {
    "gateway": gateway.app.main,
    "global_scheduler": global_scheduler.app.main,
    "endpoint_picker": endpoint_picker.app.main,
    "local_worker": local_worker.app.main,
    "engine_adapter": engine_adapter.app.main,
    "throttler": throttler.app.main,
}


@pytest.fixture(autouse=True)
def secret_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment has no more of Fairlead than the secret."""
    for name in [name for name in os.environ if name.startswith("FAIRLEAD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("FAIRLEAD_SECRET", SECRET)


@pytest.mark.e2e
def test_one_environment_gives_each_service_its_own_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "FAIRLEAD_GATEWAY_HEALTH_LISTEN": "127.0.0.1:0",
        "FAIRLEAD_SCHEDULER_POLICY": "round-robin",
        "FAIRLEAD_WORKER_POLICY": "vtc",
        "FAIRLEAD_COST": "weighted-tokens:1,4",
    }.items():
        monkeypatch.setenv(name, value)
    stack = Stack(tmp_path)
    try:
        stack.worker("w0")
        listening = stack.gateway().wait_for("listening")
        status = stack.status()
        [member] = status.cluster.members
        assert listening["health_port"]
        assert (status.policy, member.model.policy) == ("round-robin", "vtc")
        assert member.model.cost == "weighted-tokens:1,4"
        assert stack.scheduler.logged("a worker charges by another cost function") == []
    finally:
        stack.close()


@pytest.mark.parametrize("module", ["global_scheduler", "endpoint_picker"])
def test_a_quantum_is_refused_where_no_policy_reads_it(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--quantum-tokens", "512"] + (["--endpoints", "127.0.0.1:1"] if module.endswith("picker") else [])
    assert MAINS[module](argv) == 2
    assert "quantum_tokens: only the policy doubleq has a quantum, got 512 with the policy least-delay" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("module", MAINS)
@pytest.mark.parametrize(
    ("argv", "environ", "complaint"),
    [
        ((), {"FAIRLEAD_{}_LISTNE": ""}, "no such variable: FAIRLEAD_{0}_LISTNE (nearest: FAIRLEAD_{0}_LISTEN);"),
        ((), {"FAIRLEAD_METRICS": ""}, "no such variable: FAIRLEAD_METRICS (nearest: FAIRLEAD_{}_METRICS);"),
        ((), {"FAIRLEAD_{}_LOG_LEVEL": "loud"}, "FAIRLEAD_{}_LOG_LEVEL: must be one of debug, info, warning, error,"),
        (("--lisen", "127.0.0.1:0"), {}, "--lisen: no such option; nearest: --listen"),
        (("--listen", "7000"), {}, "listen: expected host:port"),
        (("--listen", "::1:7000"), {}, "listen: expected host:port, an IPv6 host in brackets"),
        (("--config", "absent.yaml"), {}, "absent.yaml: "),
    ],
)
def test_a_wrong_configuration_is_one_line_and_status_2(
    module: str,
    argv: tuple[str, ...],
    environ: dict[str, str],
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    service = SERVICES[module]
    for name, value in environ.items():
        monkeypatch.setenv(name.format(service), value)
    assert MAINS[module](argv) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"configuration: {complaint.format(service)}")


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("module", "option"), [("gateway", "listen"), ("global_scheduler", "health_listen"), ("local_worker", "metrics")]
)
def test_a_taken_port_is_one_line_and_status_2(module: str, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        flags = {"--listen": "127.0.0.1:0", f"--{option.replace('_', '-')}": address}
        flags |= {"--engine": "fake"} if module == "local_worker" else {}
        command = [sys.executable, "-m", module, *(word for pair in flags.items() for word in pair)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith(f"configuration: {option}: cannot listen on {address}: ")
    assert "address already in use" in line.lower()


@pytest.mark.parametrize(("module", "policy"), [("local_worker", "lpm"), ("global_scheduler", "preble")])
def test_baselines_without_a_bound_are_not_offered(
    module: str, policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert MAINS[module](["--policy", policy]) == 2
    said = capsys.readouterr().err
    assert said.startswith("configuration: --policy: must be one of ")
    assert said.endswith(f"got {policy!r}\n")
