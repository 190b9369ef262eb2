"""The manifests: valid for old and new Kubernetes, fitting each other, and understood by the services."""

import copy
import dataclasses
import importlib.util
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead.config import PREFIX, load
from fairlead.rpc.server import LIVENESS
from gateway.app import GatewayConfig
from gateway.tenants import Tenants
from global_scheduler.app import SchedulerConfig
from local_worker.config import WorkerConfig
from tests.deploy.wiring import Manifest, misfits, pod_template

Render = Callable[[str], list[Manifest]]
EVALUATION = "deploy/k8s"
BASE = "deploy/k8s/base"
# Made by the operator: see deploy/k8s/kustomization.yaml.
OPERATORS_SECRETS = frozenset({("Secret", "fairlead-cluster"), ("Secret", "fairlead-keys")})
CONFIGS: dict[str, Any] = {"gateway": GatewayConfig, "global_scheduler": SchedulerConfig, "local_worker": WorkerConfig}
# Variables that other software reads; everything else has to be a field of the service's configuration.
FOREIGN_VARIABLES = {"POD_NAME", "HF_HOME", "FAIRLEAD_CACHE"}


def containers(manifests: list[Manifest]) -> list[Manifest]:
    """All containers of all workloads."""
    return [
        container
        for manifest in manifests
        if (template := pod_template(manifest))
        for container in template["spec"]["containers"]
    ]


@pytest.mark.parametrize("folder", [EVALUATION, BASE])
@pytest.mark.parametrize("version", ["1.27", "1.37"])
def test_schemas_accept_the_manifests(
    render: Render, kubernetes_validate: Path, tmp_path: Path, folder: str, version: str
) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(yaml.safe_dump_all(render(folder)))
    done = _validate(kubernetes_validate, version, path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_schema_check_can_fail(render: Render, kubernetes_validate: Path, tmp_path: Path) -> None:
    manifests = render(EVALUATION)
    containers(manifests)[0]["nonsense"] = True
    path = tmp_path / "all.yaml"
    path.write_text(yaml.safe_dump_all(manifests))
    assert _validate(kubernetes_validate, "1.37", path).returncode != 0


def test_evaluation_form_is_complete(render: Render) -> None:
    assert misfits(render(EVALUATION)) == []


def test_base_needs_the_operators_secrets_and_nothing_else(render: Render) -> None:
    assert misfits(render(BASE), given=OPERATORS_SECRETS) == []
    assert sorted(set(misfits(render(BASE)))) == [
        "Secret fairlead-cluster does not exist",
        "Secret fairlead-keys does not exist",
    ]
    assert not [manifest for manifest in render(BASE) if manifest["kind"] == "Secret"]


def _break_selector(manifests: list[Manifest]) -> None:
    next(m for m in manifests if m["kind"] == "Deployment")["spec"]["selector"]["matchLabels"] = {"app": "other"}


def _break_service_port(manifests: list[Manifest]) -> None:
    next(m for m in manifests if m["kind"] == "Service")["spec"]["ports"][0]["targetPort"] = "http"


def _break_service_selector(manifests: list[Manifest]) -> None:
    next(m for m in manifests if m["kind"] == "Service")["spec"]["selector"] = {"app": "other"}


def _break_config_map(manifests: list[Manifest]) -> None:
    containers(manifests)[0]["envFrom"][0]["configMapRef"]["name"] = "other"


def _break_probe(manifests: list[Manifest]) -> None:
    containers(manifests)[0]["livenessProbe"]["grpc"]["port"] = 1


def _break_mount(manifests: list[Manifest]) -> None:
    containers(manifests)[0]["volumeMounts"] = [{"name": "other", "mountPath": "/other"}]


def _break_service_name(manifests: list[Manifest]) -> None:
    next(m for m in manifests if m["kind"] == "StatefulSet")["spec"]["serviceName"] = "other"


@pytest.mark.parametrize(
    "damage",
    [
        _break_selector,
        _break_service_port,
        _break_service_selector,
        _break_config_map,
        _break_probe,
        _break_mount,
        _break_service_name,
    ],
)
def test_wiring_check_can_fail(render: Render, damage: Callable[[list[Manifest]], None]) -> None:
    manifests = copy.deepcopy(render(EVALUATION))
    damage(manifests)
    assert len(misfits(manifests)) == 1


def test_services_accept_their_arguments_and_environment(render: Render) -> None:
    manifests = render(EVALUATION)
    maps = {m["metadata"]["name"]: m["data"] for m in manifests if m["kind"] == "ConfigMap"}
    seen = set()
    for container in containers(manifests):
        python, dash_m, module = container["command"]
        assert (python, dash_m) == ("python", "-m")
        assert importlib.util.find_spec(f"{module}.__main__") is not None
        environment = _environment(container, maps)
        config = CONFIGS[module]
        known = {PREFIX + field.name.upper() for field in dataclasses.fields(config)}
        assert set(environment) - known <= FOREIGN_VARIABLES
        loaded = load(config, _arguments(container, environment), environment, prog=module)
        port = container["ports"][0]["containerPort"]
        assert loaded.listen == f"0.0.0.0:{port}"
        seen.add(module)
    assert seen == set(CONFIGS)


def test_services_are_reached_where_they_listen(render: Render) -> None:
    manifests = render(EVALUATION)
    services = {m["metadata"]["name"]: m for m in manifests if m["kind"] == "Service"}
    for container in containers(manifests):
        for argument in container["args"]:
            if match := re.fullmatch(r"(?:\$\(POD_NAME\)\.)?(fairlead-[a-z]+):(\d+)", argument):
                name, port = match.groups()
                assert int(port) in [entry["port"] for entry in services[name]["spec"]["ports"]]


def test_grace_period_covers_the_drain(render: Render) -> None:
    manifests = render(EVALUATION)
    maps = {m["metadata"]["name"]: m["data"] for m in manifests if m["kind"] == "ConfigMap"}
    for manifest in manifests:
        template = pod_template(manifest)
        if template is None:
            continue
        (container,) = template["spec"]["containers"]
        drain = float(_environment(container, maps).get("FAIRLEAD_DRAIN_SECONDS", 0))
        pre_stop = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])
        assert template["spec"]["terminationGracePeriodSeconds"] >= drain + float(pre_stop[-1]) + 5


def test_pods_are_restricted(render: Render) -> None:
    for manifest in render(EVALUATION):
        template = pod_template(manifest)
        if template is None:
            continue
        pod = template["spec"]
        assert pod["enableServiceLinks"] is False  # it would set FAIRLEAD_* variables that nobody configured
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_liveness_does_not_depend_on_readiness(render: Render) -> None:
    """A gateway without workers is not ready; a liveness probe that asked the same would restart it for ever."""
    for container in containers(render(EVALUATION)):
        assert container["livenessProbe"]["grpc"]["service"] == LIVENESS
        assert "service" not in container["readinessProbe"]["grpc"]


def test_evaluation_keys_are_read(render: Render) -> None:
    path = Path(__file__).parents[2] / EVALUATION / "evaluation-keys.yaml"
    identity = Tenants.load(str(path)).identify([("authorization", "Bearer evaluation-only")])
    assert identity.tenant == "evaluation"


def _environment(container: Manifest, maps: dict[str, dict[str, str]]) -> dict[str, str]:
    values: dict[str, str] = {}
    for source in container["envFrom"]:
        values |= maps[source["configMapRef"]["name"]]
    for entry in container["env"]:
        values[entry["name"]] = _value(entry["valueFrom"])
    return values


def _value(source: dict[str, Any]) -> str:
    if "secretKeyRef" in source:
        return "a-secret-for-tests-only"
    return "2" if "resourceFieldRef" in source else "fairlead-worker-0"


def _arguments(container: Manifest, environment: dict[str, str]) -> list[str]:
    """As the kubelet expands them."""
    return [re.sub(r"\$\((\w+)\)", lambda match: environment[match[1]], text) for text in container["args"]]


def _validate(program: Path, version: str, path: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(program), "--strict", "-k", version, str(path)], capture_output=True, text=True, check=False
    )
