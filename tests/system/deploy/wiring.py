"""What a schema cannot see: whether the objects of a set of manifests fit each other."""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from tests.system.deploy.forms import NAMESPACE, Manifest, pod_templates, selects, templates

SCALERS = ("HorizontalPodAutoscaler", "ScaledObject")
PART_OF = "app.kubernetes.io/part-of"


def misfits(
    manifests: list[Manifest], given: frozenset[tuple[str, str]] = frozenset(), namespace: str = NAMESPACE
) -> list[str]:
    """Everything that would not work, in words, if all is to be in `namespace`.

    `given`: (kind, name) of objects made by somebody else.
    """
    workloads = [manifest for manifest in manifests if pod_templates(manifest)]
    pods = templates(manifests)
    names = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests} | given
    found = [problem for manifest in manifests for problem in _namespace_misfits(manifest, namespace)]
    found += [problem for manifest in manifests for problem in _label_misfits(manifest)]
    found += [problem for manifest in workloads for problem in _selector_misfits(manifest)]
    for manifest in manifests:
        if manifest["kind"] == "Service":
            found += _service_misfits(manifest, pods)
        if manifest["kind"] == "PodDisruptionBudget":
            found += _unmatched(manifest, manifest["spec"]["selector"], pods)
        if manifest["kind"] in SCALERS:
            target = manifest["spec"]["scaleTargetRef"]
            if (target["kind"], target["name"]) not in names:
                found.append(f"{manifest['metadata']['name']}: no {target['kind']} {target['name']} to scale")
        if manifest["kind"] == "PodMonitor":
            found += _monitor_misfits(manifest, pods)
        if manifest["kind"] in ("Ingress", "HTTPRoute", "GRPCRoute"):
            found += _route_misfits(manifest, manifests)
        if manifest["kind"] == "InferencePool":
            found += _pool_misfits(manifest, manifests, pods)
        if manifest["kind"] == "RoleBinding":
            granted = [manifest["roleRef"], *manifest["subjects"]]
            found += [
                f"no {each['kind']} {each['name']}" for each in granted if (each["kind"], each["name"]) not in names
            ]
            found += [f"subject {each}" for each in manifest["subjects"] if each["namespace"] != namespace]
        if manifest["kind"] == "StatefulSet":
            found += _stateful_misfits(manifest, names)
    for template in pods:
        found += [f"{kind} {name} does not exist" for kind, name in _references(template) if (kind, name) not in names]
        found += _probe_misfits(template)
        found += _address_misfits(template, names)
    found += [problem for manifest in workloads for problem in _mount_misfits(manifest)]
    return found


def _namespace_misfits(manifest: Manifest, namespace: str) -> Iterator[str]:
    """An object that names no namespace is put into whichever is the caller's at the time, often `default`."""
    metadata = manifest["metadata"]
    found = metadata["name"] if manifest["kind"] == "Namespace" else metadata.get("namespace")
    if found != (None if manifest["kind"] == "PriorityClass" else namespace):
        yield f"{manifest['kind']} {metadata['name']}: in namespace {found}, not in {namespace}"


def _label_misfits(manifest: Manifest) -> Iterator[str]:
    """What does not carry the label is not found, nor pruned, by it."""
    for part in (manifest, *pod_templates(manifest)):
        if manifest["kind"] != "Namespace" and part["metadata"].get("labels", {}).get(PART_OF) != "fairlead":
            yield f"{manifest['kind']} {manifest['metadata']['name']}: no label {PART_OF}"


def _selector_misfits(manifest: Manifest) -> Iterator[str]:
    for template in pod_templates(manifest):
        selector, labels = manifest["spec"].get("selector", {}), template["metadata"]["labels"]
        if not selects(selector, labels):
            yield f"{manifest['metadata']['name']}: selector {selector} misses its pods' labels {labels}"


def _unmatched(manifest: Manifest, selector: Manifest, pods: list[Manifest]) -> Iterator[str]:
    if not any(selects(selector, template["metadata"]["labels"]) for template in pods):
        yield f"{manifest['kind']} {manifest['metadata']['name']}: selector {selector} matches no pod"


def _service_misfits(service: Manifest, pods: list[Manifest]) -> Iterator[str]:
    name, selector = service["metadata"]["name"], {"matchLabels": service["spec"]["selector"]}
    yield from _unmatched(service, selector, pods)
    for template in pods:
        ports = {value for port in _ports(template) for value in (port["name"], port["containerPort"])}
        for port in service["spec"]["ports"] if selects(selector, template["metadata"]["labels"]) else []:
            target = port.get("targetPort", port["port"])
            if target not in ports:
                yield f"Service {name}: no container has port {target}"


def _monitor_misfits(monitor: Manifest, pods: list[Manifest]) -> Iterator[str]:
    name, selector = monitor["metadata"]["name"], monitor["spec"]["selector"]
    yield from _unmatched(monitor, selector, pods)
    for template in pods:
        missing = {endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]}
        missing -= {port["name"] for port in _ports(template)}
        if missing and selects(selector, template["metadata"]["labels"]):
            yield f"PodMonitor {name}: no container has port {missing}"


def _stateful_misfits(manifest: Manifest, names: set[tuple[str, str]] | frozenset[tuple[str, str]]) -> Iterator[str]:
    if ("Service", manifest["spec"]["serviceName"]) not in names:
        yield f"{manifest['metadata']['name']}: no Service {manifest['spec']['serviceName']}"


def _pool_misfits(pool: Manifest, manifests: list[Manifest], pods: list[Manifest]) -> Iterator[str]:
    """Of an InferencePool: its pods must have its ports, and its picker must be a port of a Service."""
    name, spec = pool["metadata"]["name"], pool["spec"]
    yield from _unmatched(pool, spec["selector"], pods)
    for template in pods:
        missing = {port["number"] for port in spec["targetPorts"]}
        missing -= {port["containerPort"] for port in _ports(template)}
        if missing and selects(spec["selector"], template["metadata"]["labels"]):
            yield f"InferencePool {name}: no container has port {missing}"
    picker = spec["endpointPickerRef"]
    yield from _unreachable(pool, [(picker["name"], picker["port"]["number"])], manifests)


def _route_misfits(route: Manifest, manifests: list[Manifest]) -> Iterator[str]:
    """Of a way in from outside: each of its backends must be a port of a Service, or an InferencePool."""
    pools = {manifest["metadata"]["name"] for manifest in manifests if manifest["kind"] == "InferencePool"}
    for rule in route["spec"]["rules"]:
        for backend in rule.get("backendRefs", []):
            if backend.get("kind") == "InferencePool" and backend["name"] not in pools:
                yield f"{route['kind']} {route['metadata']['name']}: no InferencePool {backend['name']}"
    yield from _unreachable(route, _backends(route), manifests)


def _unreachable(
    manifest: Manifest, backends: Iterable[tuple[str, str | int]], manifests: list[Manifest]
) -> Iterator[str]:
    services = {each["metadata"]["name"]: each["spec"]["ports"] for each in manifests if each["kind"] == "Service"}
    for service, port in backends:
        ports = {value for entry in services.get(service, []) for value in (entry["name"], entry["port"])}
        if port not in ports:
            yield f"{manifest['kind']} {manifest['metadata']['name']}: no Service {service} with port {port}"


def _backends(route: Manifest) -> Iterator[tuple[str, str | int]]:
    for rule in route["spec"]["rules"]:
        for backend in rule.get("backendRefs", []):
            if backend.get("kind", "Service") == "Service":
                yield backend["name"], backend["port"]
        for path in rule.get("http", {}).get("paths", []):
            service = path["backend"]["service"]
            yield service["name"], next(iter(service["port"].values()))


def _references(template: Manifest) -> Iterator[tuple[str, str]]:
    yield "ServiceAccount", template["spec"]["serviceAccountName"]
    if "priorityClassName" in template["spec"]:
        yield "PriorityClass", template["spec"]["priorityClassName"]
    for volume in template["spec"].get("volumes", []):
        if "secret" in volume:
            yield "Secret", volume["secret"]["secretName"]
        if "configMap" in volume:
            yield "ConfigMap", volume["configMap"]["name"]
    for container in [*template["spec"].get("initContainers", []), *template["spec"]["containers"]]:
        sources = [*container.get("envFrom", []), *(entry.get("valueFrom", {}) for entry in container.get("env", []))]
        yield from (reference for source in sources for reference in _source_references(source))


def _source_references(source: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key, reference in source.items():
        if reference.get("optional"):
            continue
        if key.startswith("secret"):
            yield "Secret", reference["name"]
        if key.startswith("configMap"):
            yield "ConfigMap", reference["name"]


def _address_misfits(template: Manifest, names: set[tuple[str, str]] | frozenset[tuple[str, str]]) -> Iterator[str]:
    """Names in arguments are not renamed by kustomize's `namePrefix`, nor noticed by anything else."""
    for container in template["spec"]["containers"]:
        arguments = container.get("args", [])
        for option, addresses in pairwise(arguments):
            for address in addresses.split(",") if option == "--scheduler" else []:
                pod, _, service = address.partition(":")[0].rpartition(".")
                for found in [("Service", service), ("StatefulSet", pod.rpartition("-")[0])]:
                    if found not in names:
                        yield f"{container['name']}: {address} is not an address of any {' '.join(found)}"
            if option == "--pickers" and ("Service", addresses.partition(":")[0]) not in names:
                yield f"{container['name']}: {addresses} is not an address of any Service"


def _probe_misfits(template: Manifest) -> Iterator[str]:
    for container in template["spec"]["containers"]:
        ports = {value for port in container.get("ports", []) for value in (port["name"], port["containerPort"])}
        for kind in ("startupProbe", "livenessProbe", "readinessProbe") if ports else ():
            (port,) = (way["port"] for name, way in container[kind].items() if name in ("grpc", "tcpSocket", "httpGet"))
            if port not in ports:
                yield f"{container['name']}: {kind} asks port {port}, which the container does not have"


def _mount_misfits(manifest: Manifest) -> Iterator[str]:
    claims = {claim["metadata"]["name"] for claim in manifest["spec"].get("volumeClaimTemplates", [])}
    for pod in [template["spec"] for template in pod_templates(manifest)]:
        volumes = claims | {volume["name"] for volume in pod.get("volumes", [])}
        for container in [*pod.get("initContainers", []), *pod["containers"]]:
            for mount in container.get("volumeMounts", []):
                if mount["name"] not in volumes:
                    yield f"{container['name']}: no volume {mount['name']}"


def _ports(template: Manifest) -> Iterator[Manifest]:
    for container in template["spec"]["containers"]:
        yield from container.get("ports", [])
