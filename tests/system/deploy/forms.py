"""The forms in which the manifests can be applied, and where to look in what they render."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Manifest = dict[str, Any]

ROOT = Path(__file__).parents[3]
NAMESPACE = "fairlead"
EVALUATION = "deploy/k8s"
BASE = "deploy/k8s/base"
# Before engines that are not ours: they have neither gateways, schedulers nor workers.
ENVOY = "deploy/k8s/overlays/envoy"
INFERENCE_POOL = "deploy/k8s/overlays/inference-pool"
FLEETS = [ENVOY, INFERENCE_POOL]
OVERLAYS = sorted({f"deploy/k8s/overlays/{path.name}" for path in (ROOT / "deploy/k8s/overlays").iterdir()} - {*FLEETS})
# Both halves of one example, in two namespaces.
GATEWAYS_OF_FLEET = "deploy/k8s/examples/fleet-and-gateways/gateways"
FLEET_OF_GATEWAYS = "deploy/k8s/examples/fleet-and-gateways/fleet"
TWO_NODES = "deploy/k8s/overlays/vllm-two-nodes"
COMPONENTS = sorted(path.name for path in (ROOT / "deploy/k8s/components").iterdir())
FORMS = [EVALUATION, BASE, *OVERLAYS]
# Made by the operator: see deploy/k8s/kustomization.yaml.
OPERATORS_SECRETS = frozenset({("Secret", "fairlead-cluster"), ("Secret", "fairlead-keys")})
# A component that changes what another one adds is tried after it.
AFTER = {"prometheus-operator": ["monitoring"], "adapter": ["gpu"], "fleet-engines": ["network-policy"]}
TLS_SECRET = frozenset({("Secret", "fairlead-tls")})


def operators_secrets(form: str) -> frozenset[tuple[str, str]]:
    """What the operator makes for a form or a component."""
    if form in FLEETS:
        return frozenset({("Secret", "fairlead-cluster")})
    return OPERATORS_SECRETS | TLS_SECRET if form.endswith(("production", "tls")) else OPERATORS_SECRETS


def pod_templates(manifest: Manifest) -> list[Manifest]:
    """The pod templates of a workload; none for other kinds."""
    spec = manifest.get("spec", {})
    if manifest["kind"] == "LeaderWorkerSet":
        return [spec["leaderWorkerTemplate"][f"{name}Template"] for name in ("leader", "worker")]
    return [spec["template"]] if "template" in spec else []


def templates(manifests: Iterable[Manifest]) -> list[Manifest]:
    """All pod templates."""
    return [template for manifest in manifests for template in pod_templates(manifest)]


def containers(manifests: Iterable[Manifest]) -> list[Manifest]:
    """All containers of all workloads."""
    return [container for template in templates(manifests) for container in template["spec"]["containers"]]


def services(manifests: Iterable[Manifest]) -> list[Manifest]:
    """The containers that run our services, not other people's software."""
    return [container for container in containers(manifests) if container["command"][0] == "python"]


def selects(selector: Manifest, labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches; an empty one matches everything."""
    if not selector.get("matchLabels", {}).items() <= labels.items():
        return False
    expressions = selector.get("matchExpressions", [])
    assert all(expression["operator"] == "In" for expression in expressions), "the only operator used here"
    return all(labels.get(expression["key"]) in expression["values"] for expression in expressions)


def config_maps(manifests: Iterable[Manifest]) -> dict[str, dict[str, str]]:
    """The data of every ConfigMap, by name."""
    return {m["metadata"]["name"]: m.get("data", {}) for m in manifests if m["kind"] == "ConfigMap"}


def named(manifests: Iterable[Manifest], kind: str, name: str) -> Manifest:
    """The one object of that kind and name."""
    [found] = [m for m in manifests if m["kind"] == kind and m["metadata"]["name"] == name]
    return found
