"""The objects of each form fit each other."""

import copy
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deploy.forms import (
    BASE,
    EVALUATION,
    FORMS,
    OVERLAYS,
    Manifest,
    config_maps,
    containers,
    named,
    operators_secrets,
)
from tests.deploy.wiring import misfits

ROOT = Path(__file__).parents[2]
COMPONENTS = sorted(path.name for path in (ROOT / "deploy/k8s/components").iterdir())
Render = Callable[[str], list[Manifest]]


@pytest.fixture
def alone(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A form made of the base and the one component that the test names; kustomize takes relative paths only."""
    base, component = (
        os.path.relpath(ROOT / "deploy/k8s" / part, tmp_path) for part in ("base", f"components/{request.param}")
    )
    (tmp_path / "kustomization.yaml").write_text(f"resources: [{base}]\ncomponents: [{component}]\n")
    return str(tmp_path)


def test_evaluation_form_is_complete(render: Render) -> None:
    assert misfits(render(EVALUATION)) == []


@pytest.mark.parametrize("form", [BASE, *OVERLAYS])
def test_other_forms_need_the_operators_secrets_and_nothing_else(render: Render, form: str) -> None:
    manifests, secrets = render(form), operators_secrets(form)
    assert misfits(manifests, given=secrets) == []
    assert set(misfits(manifests)) == {f"{kind} {name} does not exist" for kind, name in secrets}
    assert not [manifest for manifest in manifests if manifest["kind"] == "Secret"]


@pytest.mark.parametrize(("alone", "component"), [(name, name) for name in COMPONENTS], indirect=["alone"])
def test_every_component_works_alone(render: Render, alone: str, component: str) -> None:
    assert misfits(render(alone), given=operators_secrets(component)) == []
    assert render(alone) != render(BASE)


@pytest.mark.parametrize("form", FORMS)
def test_gateways_know_how_many_they_may_be(render: Render, form: str) -> None:
    manifests = render(form)
    [settings] = [data for name, data in config_maps(manifests).items() if name.startswith("fairlead-gateway-")]
    replicas = named(manifests, "Deployment", "fairlead-gateway")["spec"].get("replicas")
    most = replicas or named(manifests, "HorizontalPodAutoscaler", "fairlead-gateway")["spec"]["maxReplicas"]
    assert settings["FAIRLEAD_GATEWAY_GATEWAYS"] == str(most)


def test_the_readme_lists_overlays_and_components() -> None:
    text = (ROOT / "deploy/README.md").read_text()
    names = [*COMPONENTS, *(overlay.removeprefix("deploy/k8s/") for overlay in OVERLAYS)]
    assert [name for name in names if f"| `{name}` |" not in text] == []


def _break_selector(manifests: list[Manifest]) -> None:
    named(manifests, "Deployment", "fairlead-gateway")["spec"]["selector"]["matchLabels"] = {"app": "other"}


def _break_service_port(manifests: list[Manifest]) -> None:
    next(m for m in manifests if m["kind"] == "Service")["spec"]["ports"][0]["targetPort"] = "http"


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


def _break_policy_port(manifests: list[Manifest]) -> None:
    named(manifests, "NetworkPolicy", "fairlead-gateway")["spec"]["ingress"][0]["ports"][0]["port"] = 1


def _break_policy_peer(manifests: list[Manifest]) -> None:
    peers = named(manifests, "NetworkPolicy", "fairlead-worker")["spec"]["ingress"][0]["from"]
    peers[0]["podSelector"]["matchLabels"] = {"app": "other"}


@pytest.mark.parametrize(
    "damage",
    [
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
        _break_policy_port,
        _break_policy_peer,
    ],
)
def test_wiring_check_can_fail(render: Render, damage: Callable[[list[Manifest]], None]) -> None:
    manifests = copy.deepcopy(render("deploy/k8s/overlays/production"))
    damage(manifests)
    assert len(misfits(manifests, given=operators_secrets("production"))) == 1
