"""The manifests are valid for the oldest and the newest Kubernetes that is supported."""

import json
import subprocess
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.chart import Chart
from tests.deploy.chart_values import EVERYTHING, POOLS
from tests.deploy.conftest import CUSTOM_KINDS
from tests.deploy.forms import EVALUATION, FLEETS, FORMS, INFERENCE_POOL, TWO_NODES, Manifest, containers

pytestmark = pytest.mark.slow

Render = Callable[[str], list[Manifest]]
# gRPC probes, matchLabelKeys and unhealthyPodEvictionPolicy are on by default since the first.
VERSIONS = ["1.27", "1.37"]
SIDECARS_SINCE = {"deploy/k8s/overlays/adapter": "1.29"}
AGAINST_SCHEMA = "import json, jsonschema, sys; jsonschema.validate(*(json.load(open(path)) for path in sys.argv[1:]))"


@pytest.mark.parametrize(
    "form", [form for form in [*FORMS, *FLEETS] if form != TWO_NODES]
)  # that one has tests of its own
@pytest.mark.parametrize("version", VERSIONS)
def test_schemas_accept_the_manifests(
    render: Render, kubernetes_validate: Path, tmp_path: Path, form: str, version: str
) -> None:
    path = tmp_path / "all.yaml"
    own = [manifest for manifest in render(form) if manifest["kind"] not in (*CUSTOM_KINDS, "InferencePool")]
    path.write_text(yaml.safe_dump_all(own))
    done = _validate(kubernetes_validate, max(version, SIDECARS_SINCE.get(form, version)), path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", VERSIONS)
def test_schemas_accept_the_chart(chart: Chart, kubernetes_validate: Path, tmp_path: Path, version: str) -> None:
    """With several pools; its other objects are those of the forms."""
    path = tmp_path / "all.yaml"
    pools = [pool for pool in POOLS if version >= "1.29" or pool.get("engine") != "adapter"]
    own = [manifest for manifest in chart({**EVERYTHING, "pools": pools}) if manifest["kind"] not in CUSTOM_KINDS]
    path.write_text(yaml.safe_dump_all(own))
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


@pytest.fixture
def custom(render_with: Render, kubernetes_validate: Path, custom_schemas: Path, tmp_path: Path) -> "CustomResources":
    return CustomResources(render_with, kubernetes_validate.parent / "python", custom_schemas, tmp_path)


class CustomResources:
    """Objects whose schemas are not Kubernetes' own, and whether those accept them."""

    def __init__(self, render_with: Render, python: Path, schemas: Path, folder: Path) -> None:
        self._render_with, self._python, self._schemas, self._folder = render_with, python, schemas, folder

    def of(self, component: str, kind: str) -> Manifest:
        """The component's one object of that kind."""
        (found,) = [manifest for manifest in self._render_with(component) if manifest["kind"] == kind]
        return found

    def accept(self, manifest: Manifest) -> bool:
        path = self._folder / "object.json"
        path.write_text(json.dumps(manifest))
        command = [str(self._python), "-c", AGAINST_SCHEMA, str(path), str(self._schemas / f"{manifest['kind']}.json")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0 or "ValidationError" in done.stderr, done.stderr
        return done.returncode == 0


CUSTOM = [
    ("http-route", "HTTPRoute"),
    ("grpc-route", "GRPCRoute"),
    ("prometheus-operator", "PodMonitor"),
    ("prometheus-operator", "PrometheusRule"),
]


@pytest.mark.parametrize(("component", "kind"), CUSTOM)
def test_their_own_schemas_accept_custom_resources(custom: CustomResources, component: str, kind: str) -> None:
    assert custom.accept(custom.of(component, kind))


def test_the_schema_of_routes_accepts_one_to_a_pool(custom: CustomResources, render: Render) -> None:
    (route,) = [manifest for manifest in render(INFERENCE_POOL) if manifest["kind"] == "HTTPRoute"]
    assert custom.accept(route)


@pytest.mark.parametrize(
    ("component", "kind", "place", "field", "value"),
    [
        ("http-route", "HTTPRoute", ["spec"], "hostname", ["llm.example.com"]),
        ("http-route", "HTTPRoute", ["spec", "rules", 0], "timeout", {"request": "0s"}),
        ("http-route", "HTTPRoute", ["spec", "rules", 0, "timeouts"], "request", "for ever"),
        ("http-route", "HTTPRoute", ["spec", "rules", 0, "backendRefs", 0], "port", "http"),
        ("http-route", "HTTPRoute", ["spec", "rules", 0, "matches", 0, "path"], "type", "Prefix"),
        ("grpc-route", "GRPCRoute", ["spec", "rules", 0, "matches", 0, "method"], "path", "/"),
        ("grpc-route", "GRPCRoute", ["spec", "rules", 0, "backendRefs", 0], "port", "grpc"),
        ("prometheus-operator", "PodMonitor", ["spec", "podMetricsEndpoints", 0], "ports", "metrics"),
        ("prometheus-operator", "PrometheusRule", ["spec", "groups", 0, "rules", 0], "alerts", "Name"),
    ],
)
def test_their_schemas_refuse_faults(
    custom: CustomResources, component: str, kind: str, place: list[Any], field: str, value: object
) -> None:
    wrong = part = deepcopy(custom.of(component, kind))
    for step in place:
        part = part[step]
    part[field] = value
    assert not custom.accept(wrong)


def _validate(program: Path, version: str, path: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(program), "--strict", "-k", version, str(path)], capture_output=True, text=True, check=False
    )
