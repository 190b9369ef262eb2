"""The quick start of deploy/README.md: it fits on a laptop's cluster, and names what there is."""

import math
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.system.deploy.forms import EVALUATION, FLEETS, FORMS, ROOT, Manifest, pod_templates, services

Render = Callable[[str], list[Manifest]]
# A node of 4 CPUs and 8 GiB, less what kubeadm's own pods ask for in a cluster of kind: 950m and 290 MiB.
CPUS, MEBIBYTES = 3.05, 7 * 1024
DEPLOYING = (ROOT / "deploy/README.md").read_text()
README = DEPLOYING.partition("## Quick start")[2].partition("\n## ")[0]


def cpus(quantity: str) -> float:
    return float(quantity.removesuffix("m")) / 1000 if quantity.endswith("m") else float(quantity)


def mebibytes(quantity: str) -> float:
    return float(quantity[:-2]) * {"Mi": 1, "Gi": 1024}[quantity[-2:]]


def requested(manifests: list[Manifest]) -> tuple[float, float]:
    """The CPUs and MiB that all pods together ask for while the one that asks for most is replaced before it goes."""
    asked = [
        _pod(template) for m in manifests for template in pod_templates(m) for _ in range(m["spec"].get("replicas", 1))
    ]
    surges = [
        _pod(template)
        for m in manifests
        for template in pod_templates(m)
        if m["kind"] == "Deployment" and m["spec"].get("strategy", {}).get("type") != "Recreate"
    ]
    return sum(pod[0] for pod in asked) + max(surges)[0], sum(pod[1] for pod in asked) + max(surges)[1]


def _pod(template: Manifest) -> tuple[float, float]:
    """Sidecars ask beside the containers; others before them."""
    spec = template["spec"]
    beside = [each for each in spec.get("initContainers", []) if each.get("restartPolicy") == "Always"]
    asked = [container["resources"]["requests"] for container in [*spec["containers"], *beside]]
    return sum(cpus(each["cpu"]) for each in asked), sum(mebibytes(each["memory"]) for each in asked)


def test_the_evaluation_form_fits_on_a_node_of_four_cpus_while_it_rolls(render: Render) -> None:
    asked_cpus, asked_mebibytes = requested(render(EVALUATION))
    assert 1 <= asked_cpus <= CPUS
    assert 2048 <= asked_mebibytes <= MEBIBYTES


@pytest.mark.parametrize("form", sorted({*FORMS, *FLEETS} - {EVALUATION}))
def test_the_readme_says_what_each_form_needs(render: Render, form: str) -> None:
    asked_cpus, asked_mebibytes = requested(render(form))
    asked = f"{math.ceil(asked_cpus * 10) / 10:g} | {math.ceil(asked_mebibytes / 1024)}"
    row = f"| `{form.removeprefix('deploy/k8s/')}` | {asked} |"
    assert row in DEPLOYING, f"expected {row}"


def test_it_builds_and_loads_the_images_of_the_evaluation_form(render: Render) -> None:
    used = {container["image"] for container in services(render(EVALUATION))}
    build, _, load = README.partition("kind create cluster")
    kind, _, minikube = load.partition("minikube start")
    assert set(re.findall(r"docker build .* -t (\S+)", build)) == used
    assert set(re.findall(r"localhost/\S+", kind)) == used
    assert set(re.findall(r"minikube image load (\S+)", minikube)) == used


@pytest.mark.parametrize("form", FORMS)
def test_an_overlay_of_ones_own_takes_every_image_from_ones_registry(render: Render, tmp_path: Path, form: str) -> None:
    names = {container["image"].rpartition(":")[0] for container in services(render(form))}
    assert all(name.startswith("localhost/fairlead/") for name in names), "a name that nobody else can own"
    images = [{"name": name, "newName": name.replace("localhost/fairlead", "registry.test/llm")} for name in names]
    (tmp_path / "kustomization.yaml").write_text(
        yaml.safe_dump({"resources": [os.path.relpath(ROOT / form, tmp_path)], "images": images})
    )
    moved = {container["image"] for container in services(render(str(tmp_path)))}
    assert all(re.fullmatch(r"registry\.test/llm/[a-z-]+:\d+\.\d+\.\d+", image) for image in moved)
