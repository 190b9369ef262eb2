"""The manifests are valid for the oldest and the newest Kubernetes that is supported."""

import json
import subprocess
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.forms import EVALUATION, FORMS, Manifest, containers

pytestmark = pytest.mark.slow

Render = Callable[[str], list[Manifest]]
# gRPC probes, matchLabelKeys and unhealthyPodEvictionPolicy are on by default since the first.
VERSIONS = ["1.27", "1.37"]
SIDECARS_SINCE = {"deploy/k8s/overlays/adapter": "1.29"}
AGAINST_SCHEMA = "import json, jsonschema, sys; jsonschema.validate(*(json.load(open(path)) for path in sys.argv[1:]))"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("version", VERSIONS)
def test_schemas_accept_the_manifests(
    render: Render, kubernetes_validate: Path, tmp_path: Path, form: str, version: str
) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(yaml.safe_dump_all(render(form)))
    done = _validate(kubernetes_validate, max(version, SIDECARS_SINCE.get(form, version)), path)
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


@pytest.fixture
def http_route(render_with: Render) -> Manifest:
    (route,) = [manifest for manifest in render_with("http-route") if manifest["kind"] == "HTTPRoute"]
    return route


@pytest.fixture
def accepts_route(kubernetes_validate: Path, http_route_schema: Path, tmp_path: Path) -> Callable[[Manifest], bool]:
    """`accepts_route(manifest)` is whether the Gateway API's schema accepts it."""
    python = kubernetes_validate.parent / "python"

    def accepts(manifest: Manifest) -> bool:
        path = tmp_path / "route.json"
        path.write_text(json.dumps(manifest))
        done = subprocess.run(
            [python, "-c", AGAINST_SCHEMA, path, http_route_schema], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0 or "ValidationError" in done.stderr, done.stderr
        return done.returncode == 0

    return accepts


def test_schema_of_the_gateway_api_accepts_the_route(
    http_route: Manifest, accepts_route: Callable[[Manifest], bool]
) -> None:
    assert accepts_route(http_route)


@pytest.mark.parametrize(
    ("place", "field", "value"),
    [
        (["spec"], "hostname", ["llm.example.com"]),
        (["spec", "rules", 0], "timeout", {"request": "0s"}),
        (["spec", "rules", 0, "timeouts"], "request", "for ever"),
        (["spec", "rules", 0, "backendRefs", 0], "port", "http"),
        (["spec", "rules", 0, "matches", 0, "path"], "type", "Prefix"),
    ],
)
def test_schema_check_of_the_route_can_fail(
    http_route: Manifest, accepts_route: Callable[[Manifest], bool], place: list[Any], field: str, value: object
) -> None:
    wrong = part = deepcopy(http_route)
    for step in place:
        part = part[step]
    part[field] = value
    assert not accepts_route(wrong)


def _validate(program: Path, version: str, path: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(program), "--strict", "-k", version, str(path)], capture_output=True, text=True, check=False
    )
