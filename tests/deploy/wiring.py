"""What a schema cannot see: whether the objects of a set of manifests fit each other."""

from collections.abc import Iterator
from typing import Any

Manifest = dict[str, Any]


def pod_template(manifest: Manifest) -> Manifest | None:
    """The pod template of a workload; None for other kinds."""
    template: Manifest | None = manifest.get("spec", {}).get("template")
    return template


def misfits(manifests: list[Manifest], given: frozenset[tuple[str, str]] = frozenset()) -> list[str]:
    """Everything that would not work, in words. `given`: (kind, name) of objects made by somebody else."""
    workloads = [manifest for manifest in manifests if pod_template(manifest)]
    templates = [template for manifest in workloads if (template := pod_template(manifest))]
    names = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests} | given
    found = [problem for manifest in workloads for problem in _selector_misfits(manifest)]
    for manifest in manifests:
        if manifest["kind"] == "Service":
            found += _service_misfits(manifest, templates)
        if manifest["kind"] == "StatefulSet" and ("Service", manifest["spec"]["serviceName"]) not in names:
            found.append(f"{manifest['metadata']['name']}: no Service {manifest['spec']['serviceName']}")
    for template in templates:
        found += [f"{kind} {name} does not exist" for kind, name in _references(template) if (kind, name) not in names]
        found += _probe_misfits(template)
        found += _mount_misfits(template)
    return found


def _selector_misfits(manifest: Manifest) -> Iterator[str]:
    labels = manifest["spec"]["template"]["metadata"]["labels"]
    selector = manifest["spec"]["selector"]["matchLabels"]
    if not selector.items() <= labels.items():
        yield f"{manifest['metadata']['name']}: selector {selector} misses its pods' labels {labels}"


def _service_misfits(service: Manifest, templates: list[Manifest]) -> Iterator[str]:
    name, selector = service["metadata"]["name"], service["spec"]["selector"]
    chosen = [template for template in templates if selector.items() <= template["metadata"]["labels"].items()]
    if not chosen:
        yield f"Service {name}: selector {selector} matches no pod"
    for template in chosen:
        ports = {value for port in _ports(template) for value in (port["name"], port["containerPort"])}
        for port in service["spec"]["ports"]:
            target = port.get("targetPort", port["port"])
            if target not in ports:
                yield f"Service {name}: no container has port {target}"


def _references(template: Manifest) -> Iterator[tuple[str, str]]:
    for volume in template["spec"].get("volumes", []):
        if "secret" in volume:
            yield "Secret", volume["secret"]["secretName"]
        if "configMap" in volume:
            yield "ConfigMap", volume["configMap"]["name"]
    for container in template["spec"]["containers"]:
        sources = [*container.get("envFrom", []), *(entry.get("valueFrom", {}) for entry in container.get("env", []))]
        for source in sources:
            for key, reference in source.items():
                if key.startswith("secret"):
                    yield "Secret", reference["name"]
                if key.startswith("configMap"):
                    yield "ConfigMap", reference["name"]


def _probe_misfits(template: Manifest) -> Iterator[str]:
    for container in template["spec"]["containers"]:
        ports = {port["containerPort"] for port in container["ports"]}
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            port = container[kind]["grpc"]["port"]
            if port not in ports:
                yield f"{container['name']}: {kind} asks port {port}, which the container does not have"


def _mount_misfits(template: Manifest) -> Iterator[str]:
    volumes = {volume["name"] for volume in template["spec"].get("volumes", [])}
    for container in template["spec"]["containers"]:
        for mount in container.get("volumeMounts", []):
            if mount["name"] not in volumes:
                yield f"{container['name']}: no volume {mount['name']}"


def _ports(template: Manifest) -> Iterator[Manifest]:
    for container in template["spec"]["containers"]:
        yield from container["ports"]
