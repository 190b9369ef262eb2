"""The manifests are valid for the oldest and the newest Kubernetes that is supported."""

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.system.deploy.chart import Chart
from tests.system.deploy.chart_values import EVERYTHING, POOLS
from tests.system.deploy.conftest import CUSTOM_KINDS
from tests.system.deploy.forms import EVALUATION, FLEETS, FORMS, INFERENCE_POOL, TWO_NODES, Manifest, containers
from tests.system.deploy.schema_validator import SchemaValidator

pytestmark = pytest.mark.slow

Render = Callable[[str], list[Manifest]]
# gRPC probes, matchLabelKeys and unhealthyPodEvictionPolicy are on by default since the first.
VERSIONS = ["1.27", "1.37"]
OTHERS = (*CUSTOM_KINDS, "InferencePool", "LeaderWorkerSet")  # kinds that Kubernetes itself has no schema of
SIDECARS_SINCE = {"deploy/k8s/overlays/adapter": "1.29"}


@pytest.mark.parametrize("form", [form for form in [*FORMS, *FLEETS] if form != TWO_NODES])  # which has its own tests
@pytest.mark.parametrize("version", VERSIONS)
def test_schemas_accept_the_manifests(
    render: Render, schema_validator: SchemaValidator, form: str, version: str
) -> None:
    own = [manifest for manifest in render(form) if manifest["kind"] not in OTHERS]
    assert schema_validator.problems(own, max(version, SIDECARS_SINCE.get(form, version))) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_schemas_accept_the_chart(chart: Chart, schema_validator: SchemaValidator, version: str) -> None:
    """With several pools; its other objects are those of the forms."""
    pools = [pool for pool in POOLS if version >= "1.29" or pool.get("engine") != "adapter"]
    own = [manifest for manifest in chart({**EVERYTHING, "pools": pools}) if manifest["kind"] not in OTHERS]
    assert schema_validator.problems(own, version) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_schemas_accept_the_ingress(render_with: Render, schema_validator: SchemaValidator, version: str) -> None:
    assert schema_validator.problems(render_with("ingress"), version) == []


def test_schema_check_can_fail(render: Render, schema_validator: SchemaValidator) -> None:
    manifests = render(EVALUATION)
    containers(manifests)[0]["nonsense"] = True
    [problem] = schema_validator.problems(manifests, "1.37")
    assert "'nonsense' was unexpected" in problem
    assert schema_validator.problems([{"apiVersion": "v1", "kind": "Pot", "metadata": {"name": "a"}}], "1.37")


@pytest.fixture
def custom(render_with: Render, schema_validator: SchemaValidator, custom_schemas: Path) -> "CustomResources":
    return CustomResources(render_with, schema_validator, custom_schemas)


class CustomResources:
    """Objects whose schemas are not Kubernetes' own, and whether those accept them."""

    def __init__(self, render_with: Render, validator: SchemaValidator, schemas: Path) -> None:
        self._render_with, self._validator, self._schemas = render_with, validator, schemas

    def of(self, component: str, kind: str) -> Manifest:
        """The component's one object of that kind."""
        (found,) = [manifest for manifest in self._render_with(component) if manifest["kind"] == kind]
        return found

    def accept(self, manifest: Manifest) -> bool:
        return self._validator.accepts(manifest, json.loads((self._schemas / f"{manifest['kind']}.json").read_text()))


CUSTOM = [
    ("http-route", "HTTPRoute"),
    ("grpc-route", "GRPCRoute"),
    ("prometheus-operator", "PodMonitor"),
    ("prometheus-operator", "PrometheusRule"),
    ("autoscaling-keda", "ScaledObject"),
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
        ("autoscaling-keda", "ScaledObject", ["spec"], "minReplicas", 2),
        ("autoscaling-keda", "ScaledObject", ["spec", "triggers", 0, "metadata"], "threshold", 0.5),
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
