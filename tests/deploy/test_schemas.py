"""The manifests are valid for the oldest and the newest Kubernetes that is supported."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.deploy.forms import EVALUATION, FORMS, Manifest, containers

pytestmark = pytest.mark.slow

Render = Callable[[str], list[Manifest]]
# gRPC probes, matchLabelKeys and unhealthyPodEvictionPolicy are on by default since the first.
VERSIONS = ["1.27", "1.37"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("version", VERSIONS)
def test_schemas_accept_the_manifests(
    render: Render, kubernetes_validate: Path, tmp_path: Path, form: str, version: str
) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(yaml.safe_dump_all(render(form)))
    done = _validate(kubernetes_validate, version, path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", VERSIONS)
def test_schemas_accept_the_ingress(
    render_with: Render, kubernetes_validate: Path, tmp_path: Path, version: str
) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(yaml.safe_dump_all(render_with("ingress")))
    done = _validate(kubernetes_validate, version, path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_schema_check_can_fail(render: Render, kubernetes_validate: Path, tmp_path: Path) -> None:
    manifests = render(EVALUATION)
    containers(manifests)[0]["nonsense"] = True
    path = tmp_path / "all.yaml"
    path.write_text(yaml.safe_dump_all(manifests))
    assert _validate(kubernetes_validate, "1.37", path).returncode != 0


def _validate(program: Path, version: str, path: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(program), "--strict", "-k", version, str(path)], capture_output=True, text=True, check=False
    )
