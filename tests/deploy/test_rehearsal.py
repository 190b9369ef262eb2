"""The manifests, played on this machine: exactly their commands, environment, ports, volumes and probes."""

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

from tests.deploy.forms import EVALUATION, Manifest
from tests.redis_server import installed

pytestmark = pytest.mark.e2e
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
    "namespace": "fairlead",
    "configMapGenerator": [
        {
            "name": "fairlead-worker",
            "behavior": "merge",
            "literals": ["FAIRLEAD_ENGINE=fake", "FAIRLEAD_FAKE_STEP_SECONDS=0.02"],
        }
    ],
}


def sandboxed() -> bool:
    """Whether this machine lets us make networks of our own."""
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        return False
    tried = subprocess.run([*SANDBOX, "ip", "link", "add", "br0", "type", "bridge"], capture_output=True, check=False)
    return tried.returncode == 0


@pytest.mark.skipif(not sandboxed(), reason="needs iproute2 and the right to make namespaces")
def test_a_week_in_a_minute_loses_no_request(render: Callable[[str], list[Manifest]], tmp_path: Path) -> None:
    installed()  # its image cannot be pulled here; the distribution's package has the same program
    form = tmp_path / "form"
    form.mkdir()
    resources = {"resources": [os.path.relpath(ROOT / EVALUATION, form)]}
    (form / "kustomization.yaml").write_text(yaml.safe_dump({**STAND_IN, **resources}))
    manifests = tmp_path / "manifests.yaml"
    manifests.write_text(yaml.safe_dump_all(render(str(form))))
    report = _rehearse(manifests, tmp_path)
    assert report["failures"] == []
    assert len(report["completed"]) == 7, "every act had calls that began in it and were answered"
    assert all(report["completed"].values())
    killed = {"fairlead-worker-0": ["status -9"], "fairlead-scheduler-0": ["status -9"]}
    assert report["restarts"] == killed, "those that were killed, and no other"
    assert set(report["ends"].values()) == {"status 0"}, report["ends"]


def _rehearse(manifests: Path, folder: Path) -> dict[str, Any]:
    pods = folder / "pods"
    pods.mkdir()
    command = [*SANDBOX, "sh", "-c", 'mount -t tmpfs tmpfs /run && exec "$@"', "sh"]
    done = subprocess.run(
        [*command, sys.executable, "-m", "tests.deploy.rehearsal", str(manifests), str(pods)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    logs = {path.parent.name: path.read_text().splitlines()[-5:] for path in sorted(pods.glob("*/log"))}
    assert done.returncode == 0, f"{done.stderr}\n{json.dumps(logs, indent=1)}"
    report: dict[str, Any] = json.loads(done.stdout)
    return report
