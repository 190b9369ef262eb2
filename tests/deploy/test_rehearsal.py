"""The manifests, played on this machine: exactly their commands, environment, ports, volumes and probes."""

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.chart import Chart
from tests.deploy.forms import EVALUATION, NAMESPACE, Manifest
from tests.deploy.test_chart import FORMS
from tests.gateway.test_tls import issue
from tests.redis_server import installed

ROOT = Path(__file__).parents[2]
SANDBOX = [
    "unshare",
    "--user",
    "--map-root-user",
    "--net",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
]
# The one difference: a stand-in computes, at 20 ms per step.
STAND_IN = {
    "name": "fairlead-worker",
    "behavior": "merge",
    "literals": ["FAIRLEAD_WORKER_ENGINE=fake", "FAIRLEAD_WORKER_FAKE_STEP_SECONDS=0.02"],
}
Render = Callable[[str], list[Manifest]]


def sandboxed() -> bool:
    """Whether this machine lets us make networks of our own."""
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        return False
    tried = subprocess.run([*SANDBOX, "ip", "link", "add", "br0", "type", "bridge"], capture_output=True, check=False)
    return tried.returncode == 0


pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not sandboxed(), reason="needs iproute2 and the right to make namespaces"),
]


def test_a_week_in_a_minute_loses_no_request(render: Render, tmp_path: Path) -> None:
    report = _rehearse("week", _render(render, tmp_path, EVALUATION), tmp_path)
    over_http, over_grpc, page = report["first_calls"]
    assert json.loads(over_http)["choices"][0]["message"]["content"]
    assert over_grpc.strip()
    assert "<title>" in page
    assert report["failures"] == []
    assert report["attached"] == [["fairlead-worker-0", "fairlead-worker-1"]] * 2, (
        "in minReadySeconds, to each scheduler"
    )
    assert report["first_secret"] == "UNAUTHENTICATED", "it was replaced by another"
    assert len(report["completed"]) == 10, "every act had calls that began in it and were answered"
    assert all(report["completed"].values())
    killed = {"fairlead-worker-0": ["status -9"], "fairlead-scheduler-0": ["status -9"]}
    assert report["restarts"] == killed, "those that were killed, and no other"
    assert set(report["ends"].values()) == {"status 0"}, report["ends"]


def test_the_production_form_starts_and_serves_a_model_per_pool(chart: Chart, tmp_path: Path) -> None:
    """By the chart, whose objects are those of overlays/production (test_chart.py), but for a second pool."""
    fake = {"settings": {"ENGINE": "fake", "FAKE_STEP_SECONDS": 0.02}}
    pools = [{"name": name, "model": f"{name}-model", **fake} for name in ("first", "second")]
    certificate, key = issue(tmp_path, "fairlead-gateway")
    secrets = [
        _secret("fairlead-cluster", {"FAIRLEAD_SECRET": "0123456789abcdef" * 2}),
        _secret("fairlead-keys", {"keys.yaml": (ROOT / EVALUATION / "evaluation-keys.yaml").read_text()}),
        _secret("fairlead-tls", {path.name: path.read_text() for path in (certificate, key)}),
    ]
    manifests = tmp_path / "manifests.yaml"
    manifests.write_text(yaml.safe_dump_all([*chart({**FORMS["overlays/production"], "pools": pools}), *secrets]))
    report = _rehearse("start", manifests, tmp_path, GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=str(certificate))
    workers = {"first-model": "fairlead-first-0", "second-model": "fairlead-second-0"}
    assert {name: answer["worker"] for name, answer in report["answers"].items()} == workers
    assert [len(answer["text"]) for answer in report["answers"].values()] == [5, 5]
    assert report["completions"].keys() == workers.keys()
    assert all(report["completions"].values()), "the HTTP port answers, under the same certificate"
    assert {name.rpartition("-")[0] for name in report["scraped"]} == {
        "fairlead-gateway", "fairlead-scheduler", "fairlead-first", "fairlead-second",
    }  # fmt: skip
    assert all(report["scraped"].values()), "every service has metrics"
    assert report["restarts"] == {}
    assert set(report["ends"].values()) == {"status 0"}, report["ends"]


def _secret(name: str, texts: dict[str, str]) -> Manifest:
    data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    return {"kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE}, "data": data}


def _render(render: Render, folder: Path, form: str) -> Path:
    """The manifests of `form` with the stand-in, as a file."""
    settings = {"resources": [os.path.relpath(ROOT / form, folder)], "configMapGenerator": [STAND_IN]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(settings))
    manifests = folder / "manifests.yaml"
    manifests.write_text(yaml.safe_dump_all(render(str(folder))))
    return manifests


def _rehearse(scenario: str, manifests: Path, folder: Path, **environment: str) -> dict[str, Any]:
    installed()  # Redis' image cannot be pulled here; the distribution's package has the same program
    pods = folder / "pods"
    pods.mkdir()
    command = [*SANDBOX, "sh", "-c", 'mount -t tmpfs tmpfs /run && exec "$@"', "sh"]
    done = subprocess.run(
        [*command, sys.executable, "-m", "tests.deploy.rehearsal", scenario, str(manifests), str(pods)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    logs = {path.parent.name: path.read_text().splitlines()[-5:] for path in sorted(pods.glob("*/log"))}
    assert done.returncode == 0, f"{done.stderr}\n{json.dumps(logs, indent=1)}"
    report: dict[str, Any] = json.loads(done.stdout)
    return report
