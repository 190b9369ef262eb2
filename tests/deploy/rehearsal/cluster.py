"""Rendered manifests as running processes on one node."""

import asyncio
import base64
from collections.abc import Mapping
from pathlib import Path

from tests.deploy import kubelet
from tests.deploy.forms import Manifest, config_maps, pod_templates
from tests.deploy.rehearsal.balancer import Balancer
from tests.deploy.rehearsal.container import Container
from tests.deploy.rehearsal.network import Network
from tests.deploy.rehearsal.pod import Pod
from tests.deploy.rehearsal.workloads import Workload


class Cluster:
    """Everything the manifests describe that runs or routes."""

    def __init__(self, manifests: list[Manifest], folder: Path) -> None:
        self._manifests = manifests
        self._folder = folder
        self._network = Network(folder / "hosts")
        self._config_maps = config_maps(manifests)
        self.secrets = {m["metadata"]["name"]: _decoded(m) for m in manifests if m["kind"] == "Secret"}
        self._services = [m for m in manifests if m["kind"] == "Service"]
        self._started = 0
        self.workloads = {m["metadata"]["name"]: Workload(m, self._start_pod) for m in manifests if pod_templates(m)}

    async def start(self) -> None:
        """Return when every pod is ready."""
        for service in self._services:
            if service["spec"].get("clusterIP") != "None":
                await self._balance(service)
        await asyncio.gather(*(workload.start() for workload in self.workloads.values()))

    async def stop(self) -> None:
        """End everything, orderly."""
        await asyncio.gather(*(workload.stop() for workload in self.workloads.values()))

    async def _balance(self, service: Manifest) -> None:
        selected = [
            workload
            for name, workload in self.workloads.items()
            if service["spec"]["selector"].items() <= self._labels(name).items()
        ]

        def endpoints() -> list[str]:
            return [pod.address for workload in selected for pod in workload.pods if pod.ready]

        address = self._network.add_service(service["metadata"]["name"])
        for port in service["spec"]["ports"]:
            target = self._container_port(service, port["targetPort"])
            await Balancer(address, port["port"], target, endpoints).start()

    def _container_port(self, service: Manifest, target: str) -> int:
        [number] = [
            port["containerPort"]
            for manifest in self._manifests
            if pod_templates(manifest) and service["spec"]["selector"].items() <= _template_labels(manifest).items()
            for container in manifest["spec"]["template"]["spec"]["containers"]
            for port in container["ports"]
            if port["name"] == target
        ]
        return int(number)

    def _labels(self, workload: str) -> Mapping[str, str]:
        [manifest] = [m for m in self._manifests if pod_templates(m) and m["metadata"]["name"] == workload]
        return _template_labels(manifest)

    def _start_pod(self, manifest: Manifest, name: str) -> Pod:
        spec = manifest["spec"]["template"]["spec"]
        (description,) = spec["containers"]
        netns, address = self._network.add_pod()
        if manifest["kind"] == "StatefulSet":
            self._network.name(f"{name}.{manifest['spec']['serviceName']}", address)
        self._started += 1
        folder = self._folder / f"{self._started:02}-{name}"
        folder.mkdir()
        fields = {"metadata.name": name, "status.podIP": address}
        environment = kubelet.environment(description, self._config_maps, self.secrets, fields)
        volumes = {volume["name"]: self._volume(volume, folder) for volume in spec.get("volumes", [])}
        mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in description.get("volumeMounts", [])}
        container = Container(
            netns=netns,
            command=kubelet.command_line(description, environment),
            environment=environment,
            mounts={**mounts, "/etc/hosts": self._network.hosts},
            log=folder / "log",
        )
        return Pod(name, address, spec, container, lambda: self._network.remove_pod(netns))

    def _volume(self, volume: Manifest, folder: Path) -> Path:
        path: Path = folder / volume["name"]
        path.mkdir()
        if "secret" in volume:
            for key, value in self.secrets[volume["secret"]["secretName"]].items():
                (path / key).write_text(value)
        if "configMap" in volume:
            for key, value in self._config_maps[volume["configMap"]["name"]].items():
                (path / key).write_text(value)
        return path


def _template_labels(manifest: Manifest) -> Mapping[str, str]:
    labels: Mapping[str, str] = manifest["spec"]["template"]["metadata"]["labels"]
    return labels


def _decoded(secret: Manifest) -> dict[str, str]:
    return {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
