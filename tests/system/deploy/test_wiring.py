"""The objects of each form fit each other."""

import copy
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.deploy.forms import (
    BASE,
    COMPONENTS,
    EVALUATION,
    FLEETS,
    FORMS,
    INFERENCE_POOL,
    OVERLAYS,
    Manifest,
    containers,
    named,
    operators_secrets,
    pod_templates,
)
from tests.system.deploy.wiring import misfits

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
Render = Callable[[str], list[Manifest]]


def test_evaluation_form_is_complete(render: Render) -> None:
    assert misfits(render(EVALUATION)) == []


@pytest.mark.parametrize("form", [BASE, *OVERLAYS, *FLEETS])
def test_other_forms_need_the_operators_secrets_and_nothing_else(render: Render, form: str) -> None:
    manifests, secrets = render(form), operators_secrets(form)
    assert misfits(manifests, given=secrets) == []
    assert set(misfits(manifests)) == {f"{kind} {name} does not exist" for kind, name in secrets}
    assert not [manifest for manifest in manifests if manifest["kind"] == "Secret"]


@pytest.mark.parametrize("component", COMPONENTS)
def test_every_component_works_alone(render: Render, render_with: Render, component: str) -> None:
    manifests = render_with(component)
    assert misfits(manifests, given=operators_secrets(component)) == []
    assert manifests != render(BASE)


@pytest.mark.parametrize(
    ("component", "kind", "port"),
    [("ingress", "Ingress", "http"), ("http-route", "HTTPRoute", "http"), ("grpc-route", "GRPCRoute", "grpc")],
)
def test_a_way_in_from_outside_leads_to_a_port_of_the_service(
    render_with: Render, component: str, kind: str, port: str
) -> None:
    manifests = copy.deepcopy(render_with(component))
    assert misfits(manifests, given=operators_secrets(component)) == []
    service = named(manifests, "Service", "fairlead-gateway")["spec"]
    service["ports"] = [entry for entry in service["ports"] if entry["name"] != port]
    [problem] = misfits(manifests, given=operators_secrets(component))
    assert problem.startswith(f"{kind} fairlead-gateway: no Service fairlead-gateway with port ")


@pytest.mark.parametrize("form", [*OVERLAYS, *FLEETS])
def test_an_overlay_of_ones_own_moves_everything_to_its_namespace(render: Render, tmp_path: Path, form: str) -> None:
    (tmp_path / "kustomization.yaml").write_text(
        f"namespace: llm\nresources: [{os.path.relpath(ROOT / form, tmp_path)}]\n"
    )
    assert misfits(render(str(tmp_path)), given=operators_secrets(form), namespace="llm") == []


@pytest.mark.parametrize("form", FORMS)
def test_no_form_resets_the_number_of_gateways_and_workers(render: Render, form: str) -> None:
    """A form that names a number resets it on each apply; the next form, without it, resets it to 1."""
    numbers = {m["metadata"]["name"]: m["spec"].get("replicas") for m in render(form) if pod_templates(m)}
    assert numbers == {"fairlead-gateway": None, "fairlead-worker": None, "fairlead-scheduler": 2, "fairlead-redis": 1}


def test_the_readme_lists_overlays_and_components() -> None:
    text = (ROOT / "deploy/README.md").read_text()
    names = [*COMPONENTS, *(overlay.removeprefix("deploy/k8s/") for overlay in [*OVERLAYS, *FLEETS])]
    assert [name for name in names if f"| `{name}` |" not in text] == []


def test_kustomize_does_not_rename_addresses(render: Render, tmp_path: Path) -> None:
    """So deploy/README.md advises against it."""
    base = os.path.relpath(ROOT / BASE, tmp_path)
    (tmp_path / "kustomization.yaml").write_text(f"namePrefix: chat-\nresources: [{base}]\n")
    problems = misfits(render(str(tmp_path)))
    assert "gateway: fairlead-scheduler-0.fairlead-schedulers:7050 is not an address of any Service" in str(problems)


def _break_namespace(manifests: list[Manifest]) -> None:
    del named(manifests, "NetworkPolicy", "fairlead-deny")["metadata"]["namespace"]


def _break_label(manifests: list[Manifest]) -> None:
    del named(manifests, "HorizontalPodAutoscaler", "fairlead-gateway")["metadata"]["labels"]


def _break_pod_label(manifests: list[Manifest]) -> None:
    labels = named(manifests, "Deployment", "fairlead-redis")["spec"]["template"]["metadata"]["labels"]
    del labels["app.kubernetes.io/part-of"]


def _break_selector(manifests: list[Manifest]) -> None:
    named(manifests, "Deployment", "fairlead-gateway")["spec"]["selector"]["matchLabels"] = {"app": "other"}


def _break_service_port(manifests: list[Manifest]) -> None:
    next(m for m in manifests if m["kind"] == "Service")["spec"]["ports"][0]["targetPort"] = "other"


def _break_service_selector(manifests: list[Manifest]) -> None:
    next(m for m in manifests if m["kind"] == "Service")["spec"]["selector"] = {"app": "other"}


def _break_config_map(manifests: list[Manifest]) -> None:
    next(c for c in containers(manifests) if "envFrom" in c)["envFrom"][0]["configMapRef"]["name"] = "other"


def _break_service_account(manifests: list[Manifest]) -> None:
    manifests.remove(named(manifests, "ServiceAccount", "fairlead-worker"))


def _break_probe(manifests: list[Manifest]) -> None:
    next(c for c in containers(manifests) if "grpc" in c["livenessProbe"])["livenessProbe"]["grpc"]["port"] = 1


def _break_mount(manifests: list[Manifest]) -> None:
    next(c for c in containers(manifests) if c["name"] == "worker")["volumeMounts"] = [{"name": "a", "mountPath": "/a"}]


def _break_service_name(manifests: list[Manifest]) -> None:
    next(m for m in manifests if m["kind"] == "StatefulSet")["spec"]["serviceName"] = "other"


def _break_disruption_budget(manifests: list[Manifest]) -> None:
    named(manifests, "PodDisruptionBudget", "fairlead-worker")["spec"]["selector"]["matchLabels"] = {"app": "other"}


def _break_scale_target(manifests: list[Manifest]) -> None:
    named(manifests, "HorizontalPodAutoscaler", "fairlead-worker")["spec"]["scaleTargetRef"]["kind"] = "Deployment"


def _break_priority(manifests: list[Manifest]) -> None:
    named(manifests, "Deployment", "fairlead-redis")["spec"]["template"]["spec"]["priorityClassName"] = "other"


def _break_address(manifests: list[Manifest]) -> None:
    arguments = next(c for c in containers(manifests) if c["name"] == "gateway")["args"]
    arguments[arguments.index("--scheduler") + 1] = "fairlead-scheduler-0.other:7050"


@pytest.mark.parametrize(
    "damage",
    [
        _break_namespace,
        _break_label,
        _break_pod_label,
        _break_selector,
        _break_service_port,
        _break_service_selector,
        _break_config_map,
        _break_service_account,
        _break_probe,
        _break_mount,
        _break_service_name,
        _break_disruption_budget,
        _break_scale_target,
        _break_priority,
        _break_address,
    ],
)
def test_wiring_check_can_fail(render: Render, damage: Callable[[list[Manifest]], None]) -> None:
    manifests = copy.deepcopy(render("deploy/k8s/overlays/production"))
    damage(manifests)
    assert len(misfits(manifests, given=operators_secrets("production"))) == 1


def _break_pool_port(manifests: list[Manifest]) -> None:
    named(manifests, "InferencePool", "fairlead")["spec"]["targetPorts"][0]["number"] = 1


def _break_pool_selector(manifests: list[Manifest]) -> None:
    named(manifests, "InferencePool", "fairlead")["spec"]["selector"]["matchLabels"] = {"app": "other"}


def _break_pool_picker(manifests: list[Manifest]) -> None:
    named(manifests, "InferencePool", "fairlead")["spec"]["endpointPickerRef"]["port"]["number"] = 1


def _break_pool_route(manifests: list[Manifest]) -> None:
    named(manifests, "HTTPRoute", "fairlead-engines")["spec"]["rules"][0]["backendRefs"][0]["name"] = "other"


def _break_rights(manifests: list[Manifest]) -> None:
    named(manifests, "RoleBinding", "fairlead-picker")["subjects"][0]["name"] = "other"


@pytest.mark.parametrize(
    "damage", [_break_pool_port, _break_pool_selector, _break_pool_picker, _break_pool_route, _break_rights]
)
def test_wiring_check_of_a_pool_can_fail(render: Render, damage: Callable[[list[Manifest]], None]) -> None:
    manifests = copy.deepcopy(render(INFERENCE_POOL))
    damage(manifests)
    assert len(misfits(manifests, given=operators_secrets(INFERENCE_POOL))) == 1
