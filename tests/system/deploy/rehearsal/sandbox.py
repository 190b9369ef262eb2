"""Runs a rehearsal in namespaces of its own, where it makes networks and mounts and leaves nothing behind."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.redis_server import installed
from tests.system.deploy.forms import ROOT, Manifest

SECONDS = 900  # it takes 200 on two idle cores, most of them grace periods, and more on a busy machine
COMMAND = [
    *("unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
]


def possible() -> bool:
    """Whether this machine lets us make networks of our own."""
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        return False
    tried = subprocess.run([*COMMAND, "ip", "link", "add", "br0", "type", "bridge"], capture_output=True, check=False)
    return tried.returncode == 0


needed = pytest.mark.skipif(not possible(), reason="needs iproute2 and the right to make namespaces")


def rehearse(
    scenario: str, forms: Mapping[str, list[Manifest]], folder: Path, environment: Mapping[str, str]
) -> dict[str, Any]:
    """The report of the scenario over these forms; `environment` is added to the users' own."""
    installed()  # Redis' image cannot be pulled here; the distribution's package has the same program
    pods, rendered = folder / "pods", folder / "manifests"
    pods.mkdir()
    rendered.mkdir()
    for name, manifests in forms.items():
        (rendered / f"{name}.yaml").write_text(yaml.dump_all(manifests, Dumper=yaml.CSafeDumper))
    # Before pods, as a kernel's network comes before processes. Without the right to it, nice says so and goes on.
    command = ["nice", "-n", "-10", *COMMAND, "sh", "-c", 'mount -t tmpfs tmpfs /run && exec "$@"', "sh"]
    done = subprocess.run(
        [*command, sys.executable, "-m", "tests.system.deploy.rehearsal", scenario, str(rendered), str(pods)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    logs = {f"{path.parent.name}/{path.name}": path.read_text().splitlines()[-5:] for path in pods.glob("*/*.log")}
    assert done.returncode == 0, f"{done.stderr}\n{json.dumps(logs, indent=1)}"
    report: dict[str, Any] = json.loads(done.stdout)
    return report
