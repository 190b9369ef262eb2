"""What the manifests say to the services is what the services understand, and how they run is how it was meant."""

import importlib.util
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from endpoint_picker.config import PickerConfig
from engine_adapter.config import AdapterConfig
from gateway.config import GatewayConfig
from gateway.tenants import Credentials, Tenants
from global_scheduler.config import SchedulerConfig
from local_worker.config import WorkerConfig
from serving.config import load, options
from serving.environment import PREFIX, SHARED, variable
from serving.rpc.server import LIVENESS
from tests.services import SERVICES
from tests.system.deploy import kubelet
from tests.system.deploy.forms import (
    ENVOY,
    EVALUATION,
    FLEETS,
    FORMS,
    TWO_NODES,
    Manifest,
    config_maps,
    selects,
    services,
    templates,
)
from throttler.config import ThrottlerConfig
from throttler.core.profiles import RateLimits
from throttler.profiles_file import parse

ROOT = Path(__file__).parents[3]
Render = Callable[[str], list[Manifest]]
CONFIGS: dict[str, Any] = {
    "gateway": GatewayConfig,
    "global_scheduler": SchedulerConfig,
    "endpoint_picker": PickerConfig,
    "local_worker": WorkerConfig,
    "engine_adapter": AdapterConfig,
    "throttler": ThrottlerConfig,
}
# Variables that other software reads; everything else has to be a field of the service's configuration.
FOREIGN = re.compile(
    r"POD_NAME|POD_NAMESPACE|POD_IP|HF_HOME|HF_TOKEN|FAIRLEAD_CACHE|FLASHINFER_WORKSPACE_BASE|OTEL_\w+|OMP_NUM_THREADS|REDIS_PASSWORD"
)
SECRETS: dict[str, dict[str, str]] = defaultdict(lambda: defaultdict(lambda: "a-secret-for-tests-only"))
FIELDS = {"metadata.name": "fairlead-worker-0", "metadata.namespace": "fairlead", "status.podIP": "10.0.0.1"}


def environment(container: Manifest, manifests: list[Manifest]) -> dict[str, str]:
    return kubelet.environment(container, config_maps(manifests), SECRETS, FIELDS)


@pytest.mark.parametrize(
    "form", [form for form in [*FORMS, *FLEETS] if form != TWO_NODES]
)  # that one has tests of its own
def test_services_accept_their_arguments_and_environment(render: Render, form: str) -> None:
    manifests = render(form)
    seen = set()
    for container in services(manifests):
        values = environment(container, manifests)
        python, dash_m, module, *arguments = kubelet.command_line(container, values)
        assert (python, dash_m) == ("python", "-m")
        assert importlib.util.find_spec(f"{module}.__main__") is not None
        config, service = CONFIGS[module], SERVICES[module]
        known = {variable(service, field.name) for field in options(config)}
        known |= {PREFIX + option.upper() for option in SHARED}
        assert [name for name in values if name not in known and not FOREIGN.fullmatch(name)] == []
        loaded = load(config, service, arguments, values, prog=module)
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        if module == "throttler":  # Envoy asks it within the pod
            assert (loaded.listen, loaded.health_listen) == ("127.0.0.1:7060", f"[::]:{ports['health']}")
        else:
            assert loaded.listen == f"[::]:{ports['grpc']}"
        assert loaded.metrics == (f"[::]:{ports['metrics']}" if "metrics" in ports else "")
        if module == "gateway":
            assert loaded.http_listen == f"[::]:{ports['http']}"
        if module == "local_worker":
            assert loaded.max_prompt_tokens is None, "as long as the model and its cache allow, also on GPUs"
        if module.startswith("local_worker"):
            assert loaded.advertise == f"10.0.0.1:{ports['grpc']}"
        seen.add(module)
    worker = "engine_adapter" if form.endswith("adapter") else "local_worker"
    pickers = {form: {"endpoint_picker", "engine_adapter"} for form in FLEETS}
    pickers[ENVOY] |= {"throttler"}
    assert seen == pickers.get(form, {"gateway", "global_scheduler", worker})


def test_services_are_reached_where_they_listen(render: Render) -> None:
    manifests = render(EVALUATION)
    ports = {
        m["metadata"]["name"]: [entry["port"] for entry in m["spec"]["ports"]]
        for m in manifests
        if m["kind"] == "Service"
    }
    found = [
        match
        for container in services(manifests)
        for argument in container["args"]
        for address in argument.split(",")
        if (match := re.fullmatch(r"(?:fairlead-[a-z]+-\d\.)?(fairlead-[a-z]+):(\d+)", address))
    ]
    assert len(found) == 4, "gateway and worker to each scheduler"
    assert [match[0] for match in found if int(match[2]) not in ports[match[1]]] == []


@pytest.mark.parametrize("form", [*FORMS, *FLEETS])
def test_grace_period_covers_the_drain(render: Render, form: str) -> None:
    manifests = render(form)
    for template in templates(manifests):
        for container in template["spec"]["containers"]:
            if "ports" not in container:  # ranks that compute for another pod take no calls
                continue
            own = environment(container, manifests)
            drain = sum(float(value) for name, value in own.items() if name.endswith("_DRAIN_SECONDS"))
            drain += sum(float(each) for each in re.findall(r"--shutdown-timeout=(\d+)", " ".join(container["args"])))
            pre_stop = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])
            asleep = float(pre_stop[-1].rpartition(" ")[2])
            assert template["spec"]["terminationGracePeriodSeconds"] >= drain + asleep + 5


@pytest.mark.parametrize("form", [*FORMS, *FLEETS])
def test_pods_are_restricted(render: Render, form: str) -> None:
    manifests = render(form)
    bindings = [manifest for manifest in manifests if manifest["kind"] == "RoleBinding"]
    with_rights = {subject["name"] for binding in bindings for subject in binding["subjects"]}
    for template in templates(manifests):
        pod = template["spec"]
        assert pod["enableServiceLinks"] is False  # it would set FAIRLEAD_* variables that nobody reads
        assert pod["automountServiceAccountToken"] is (pod["serviceAccountName"] in with_rights)
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["requests"].keys() >= {"cpu", "memory", "ephemeral-storage"}
            assert container["resources"]["limits"].keys() >= {"memory", "ephemeral-storage"}


@pytest.mark.parametrize("form", [*FORMS, *FLEETS])
def test_a_pod_that_fills_its_volumes_on_disk_is_not_evicted(render: Render, form: str) -> None:
    for template in templates(render(form)):
        pod = template["spec"]
        disks = [volume["emptyDir"]["sizeLimit"] for volume in pod.get("volumes", []) if _is_on_disk(volume)]
        every = [*pod.get("initContainers", []), *pod["containers"]]
        limits = [container["resources"]["limits"]["ephemeral-storage"] for container in every]
        assert sum(map(_gibibytes, limits)) > sum(map(_gibibytes, disks))


def _is_on_disk(volume: Manifest) -> bool:
    return "emptyDir" in volume and volume["emptyDir"].get("medium") != "Memory"


def _gibibytes(quantity: str) -> int:
    assert quantity.endswith("Gi"), quantity
    return int(quantity.removesuffix("Gi"))


@pytest.mark.parametrize("form", [*FORMS, *FLEETS])
def test_every_workload_may_be_disrupted_one_pod_at_a_time(render: Render, form: str) -> None:
    manifests = render(form)
    budgets = [m["spec"] for m in manifests if m["kind"] == "PodDisruptionBudget"]
    for template in templates(manifests):
        labels = template["metadata"]["labels"]
        assert [budget["maxUnavailable"] for budget in budgets if selects(budget["selector"], labels)] == [1]


def test_liveness_does_not_depend_on_readiness(render: Render) -> None:
    """A gateway without workers is not ready; a liveness probe that asked the same would restart it for ever."""
    for container in services(render(EVALUATION)):
        assert container["livenessProbe"]["grpc"]["service"] == LIVENESS
        assert "service" not in container["readinessProbe"]["grpc"]


def test_evaluation_keys_are_read() -> None:
    tenants = Tenants.load(str(ROOT / EVALUATION / "evaluation-keys.yaml"))
    identity = tenants.identify(Credentials(authorization="Bearer evaluation-only"))
    assert identity.tenant == "evaluation"


def test_profiles_are_read_and_change_without_a_restart(render: Render) -> None:
    manifests = render(EVALUATION)
    file = "deploy/k8s/base/profiles.yaml"
    profiles = parse(config_maps(manifests)["fairlead-profiles"]["profiles.yaml"], file, RateLimits())
    assert profiles.tiers.keys() == {"premium", "standard"}
    assert "agent" in profiles.apps
