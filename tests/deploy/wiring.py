"""What a schema cannot see: whether the objects of a set of manifests fit each other."""

from collections.abc import Iterator
from typing import Any

from tests.deploy.forms import NAMESPACE, Manifest, containers, pod_template, selects, templates

SCALERS = ("HorizontalPodAutoscaler", "ScaledObject")


def misfits(
    manifests: list[Manifest], given: frozenset[tuple[str, str]] = frozenset(), namespace: str = NAMESPACE
) -> list[str]:
    """Everything that would not work, in words, if all is to be in `namespace`.

    `given`: (kind, name) of objects made by somebody else.
    """
    workloads = [manifest for manifest in manifests if pod_template(manifest)]
    pods = templates(manifests)
    names = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests} | given
    found = [problem for manifest in manifests for problem in _namespace_misfits(manifest, namespace)]
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
        if manifest["kind"] in ("Ingress", "HTTPRoute"):
            found += _route_misfits(manifest, manifests)
        if manifest["kind"] == "StatefulSet":
            found += _stateful_misfits(manifest, names)
    for template in pods:
        found += [f"{kind} {name} does not exist" for kind, name in _references(template) if (kind, name) not in names]
        found += _probe_misfits(template)
    found += [problem for manifest in workloads for problem in _mount_misfits(manifest)]
    return found


def _namespace_misfits(manifest: Manifest, namespace: str) -> Iterator[str]:
    """An object that names no namespace is put into whichever is the caller's at the time, often `default`."""
    metadata = manifest["metadata"]
    found = metadata["name"] if manifest["kind"] == "Namespace" else metadata.get("namespace")
    if found != namespace:
        yield f"{manifest['kind']} {metadata['name']}: in namespace {found}, not in {namespace}"


def _selector_misfits(manifest: Manifest) -> Iterator[str]:
    labels = manifest["spec"]["template"]["metadata"]["labels"]
    selector = manifest["spec"]["selector"]["matchLabels"]
    if not selector.items() <= labels.items():
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


def _stateful_misfits(manifest: Manifest, names: set[tuple[str, str]] | frozenset[tuple[str, str]]) -> Iterator[str]:
    if ("Service", manifest["spec"]["serviceName"]) not in names:
        yield f"{manifest['metadata']['name']}: no Service {manifest['spec']['serviceName']}"


def _route_misfits(route: Manifest, manifests: list[Manifest]) -> Iterator[str]:
    """Of a way in from outside: each of its backends must be a port of a Service."""
    services = {
        manifest["metadata"]["name"]: manifest["spec"]["ports"]
        for manifest in manifests
        if manifest["kind"] == "Service"
    }
    for service, port in _backends(route):
        ports = {value for entry in services.get(service, []) for value in (entry["name"], entry["port"])}
        if port not in ports:
            yield f"{route['kind']} {route['metadata']['name']}: no Service {service} with port {port}"


def _backends(route: Manifest) -> Iterator[tuple[str, str | int]]:
    for rule in route["spec"]["rules"]:
        for backend in rule.get("backendRefs", []):
            yield backend["name"], backend["port"]
        for path in rule.get("http", {}).get("paths", []):
            service = path["backend"]["service"]
            yield service["name"], next(iter(service["port"].values()))


def _references(template: Manifest) -> Iterator[tuple[str, str]]:
    yield "ServiceAccount", template["spec"]["serviceAccountName"]
    for volume in template["spec"].get("volumes", []):
        if "secret" in volume:
            yield "Secret", volume["secret"]["secretName"]
        if "configMap" in volume:
            yield "ConfigMap", volume["configMap"]["name"]
    for container in template["spec"]["containers"]:
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


def _probe_misfits(template: Manifest) -> Iterator[str]:
    for container in containers([{"spec": {"template": template}}]):
        ports = {value for port in container["ports"] for value in (port["name"], port["containerPort"])}
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            (port,) = (way["port"] for name, way in container[kind].items() if name in ("grpc", "tcpSocket"))
            if port not in ports:
                yield f"{container['name']}: {kind} asks port {port}, which the container does not have"


def _mount_misfits(manifest: Manifest) -> Iterator[str]:
    pod = manifest["spec"]["template"]["spec"]
    claims = manifest["spec"].get("volumeClaimTemplates", [])
    volumes = {volume["name"] for volume in pod.get("volumes", [])} | {claim["metadata"]["name"] for claim in claims}
    for container in pod["containers"]:
        for mount in container.get("volumeMounts", []):
            if mount["name"] not in volumes:
                yield f"{container['name']}: no volume {mount['name']}"


def _ports(template: Manifest) -> Iterator[Manifest]:
    for container in template["spec"]["containers"]:
        yield from container["ports"]
