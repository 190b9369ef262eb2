"""Rendered manifests as running processes on one node."""

import asyncio
import base64
import copy
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.system.deploy import kubelet
from tests.system.deploy.forms import NAMESPACE, Manifest, config_maps, pod_templates
from tests.system.deploy.network_policies import Endpoint, Port, allows
from tests.system.deploy.rehearsal.balancer import Balancer
from tests.system.deploy.rehearsal.container import Container
from tests.system.deploy.rehearsal.network import Closed, Network
from tests.system.deploy.rehearsal.pod import Pod
from tests.system.deploy.rehearsal.sidecar import Sidecar
from tests.system.deploy.rehearsal.workloads import Workload

RESTARTED = "kubectl.kubernetes.io/restartedAt"


class Cluster:
    """Everything the manifests describe that runs or routes. `secrets` are those that are there, by name and key."""

    def __init__(self, folder: Path) -> None:
        self.workloads: dict[str, Workload] = {}
        self.secrets: dict[str, dict[str, str]] = {}
        self._folder = folder
        self._network = Network(folder / "hosts")
        self._config_maps: dict[str, dict[str, str]] = {}
        self._policies: list[Manifest] = []
        self._services: set[str] = set()
        self._ended: list[Pod] = []
        self._started = 0
        self._restarts = 0

    async def apply(self, manifests: list[Manifest]) -> None:
        """As `kubectl apply` does and autoscalers follow; return when everything is rolled out."""
        manifests = [self._restarted(manifest) for manifest in manifests]
        assert {m["metadata"].get("namespace", NAMESPACE) for m in manifests} == {NAMESPACE}
        self._config_maps |= config_maps(manifests)
        self.secrets |= {m["metadata"]["name"]: _decoded(m) for m in manifests if m["kind"] == "Secret"}
        self._policies = [m for m in manifests if m["kind"] == "NetworkPolicy"]
        described = {m["metadata"]["name"]: m for m in manifests if pod_templates(m)}
        self.workloads = {name: Workload(m, self._start_pod) for name, m in described.items()} | self.workloads
        for service in [m for m in manifests if m["kind"] == "Service" and m["spec"].get("clusterIP") != "None"]:
            await self._balance(service)
        everyone = [(workload, pod) for workload in self.workloads.values() for pod in workload.pods]
        await asyncio.gather(*(pod.interface.close(self._closed(workload)) for workload, pod in everyone))
        await asyncio.gather(*(self.workloads[name].apply(manifest) for name, manifest in described.items()))
        scalers = [m["spec"] for m in manifests if m["kind"] == "HorizontalPodAutoscaler"]
        await asyncio.gather(*(self._autoscale(scaler) for scaler in scalers))

    async def restart(self, manifests: list[Manifest]) -> None:
        """Apply, and `kubectl rollout restart` all workloads at the same time."""
        self._restarts += 1
        await self.apply(manifests)

    async def delete(self, workload: str) -> None:
        """End the workload and its pods, orderly."""
        deleted = self.workloads.pop(workload)
        await deleted.stop()
        self._ended += deleted.ended

    async def stop(self) -> None:
        """End everything, orderly."""
        await asyncio.gather(*(self.delete(name) for name in list(self.workloads)))

    async def connections(self) -> list[tuple[str, str]]:
        """Which workload's pods can connect to which other's, at the first of its ports."""
        pairs = list(itertools.permutations(self.workloads.values(), 2))
        ports = {workload.name: next(iter(workload.ports.values())) for workload in self.workloads.values()}
        tried = (here.pods[0].connects(there.pods[0].address, ports[there.name]) for here, there in pairs)
        connected = await asyncio.gather(*tried)
        return [(here.name, there.name) for (here, there), is_open in zip(pairs, connected, strict=True) if is_open]

    def ends(self) -> dict[str, Any]:
        """Why containers were started again, and how pods ended, once all have."""
        return {
            "restarts": {pod.name: pod.restarts for pod in self._ended if pod.restarts},
            "ends": {pod.name: pod.end for pod in self._ended},
        }

    def _restarted(self, manifest: Manifest) -> Manifest:
        """With the annotation of the last restart, which `apply` leaves where it is."""
        marked = copy.deepcopy(manifest)
        for template in pod_templates(marked):
            template["metadata"].setdefault("annotations", {})[RESTARTED] = str(self._restarts)
        return marked

    async def _autoscale(self, scaler: Manifest) -> None:
        target = self.workloads[scaler["scaleTargetRef"]["name"]]
        await target.scale(max(len(target.pods), scaler["minReplicas"]))

    async def _balance(self, service: Manifest) -> None:
        name, selector = service["metadata"]["name"], service["spec"]["selector"]
        if name in self._services:
            return
        self._services.add(name)
        address = await self._network.add_service(name)
        for port in service["spec"]["ports"]:
            [target] = {w.ports[port["targetPort"]] for w in self._selected(selector)}

            def endpoints(client: str, target: int = target) -> list[str]:
                source = self._endpoint(client)
                return [
                    pod.address
                    for workload in self._selected(selector)
                    if allows(self._policies, source, _as_endpoint(workload), Port(target))
                    for pod in workload.pods
                    if pod.ready
                ]

            await Balancer(address, port["port"], target, endpoints).start()

    def _selected(self, selector: Mapping[str, str]) -> list[Workload]:
        return [workload for workload in self.workloads.values() if selector.items() <= workload.labels.items()]

    def _endpoint(self, address: str) -> Endpoint:
        """Who has the address: a pod, or somebody outside."""
        pods = ((pod.address, workload) for workload in self.workloads.values() for pod in workload.pods)
        return next((_as_endpoint(workload) for known, workload in pods if known == address), Endpoint("host"))

    def _closed(self, source: Workload) -> list[Closed]:
        """The ports at which policies keep the workload's pods from others."""
        return [
            Closed(self._network.subnet(target.name), port)
            for target in self.workloads.values()
            for port in target.ports.values()
            if not allows(self._policies, _as_endpoint(source), _as_endpoint(target), Port(port))
        ]

    def _start_pod(self, manifest: Manifest, name: str) -> Pod:
        spec, workload = manifest["spec"]["template"]["spec"], manifest["metadata"]["name"]
        interface = self._network.add_pod(workload, self._closed(self.workloads[workload]))
        if manifest["kind"] == "StatefulSet":
            self._network.name(f"{name}.{manifest['spec']['serviceName']}", interface.address)
        self._started += 1
        folder = self._folder / f"{self._started:02}-{name}"
        folder.mkdir()
        volumes = {volume["name"]: self._volume(volume, folder) for volume in spec.get("volumes", [])}
        for claim in manifest["spec"].get("volumeClaimTemplates", []):
            volumes[claim["metadata"]["name"]] = self._folder / f"{claim['metadata']['name']}-{name}"
            volumes[claim["metadata"]["name"]].mkdir(exist_ok=True)

        def container(description: Manifest) -> Container:
            fields = {"metadata.name": name, "status.podIP": interface.address}
            environment = kubelet.environment(description, self._config_maps, self.secrets, fields)
            mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in description.get("volumeMounts", [])}
            return Container(
                netns=interface.netns,
                command=kubelet.command_line(description, environment),
                environment=environment,
                mounts={**mounts, "/etc/hosts": self._network.hosts},
                log=folder / f"{description['name']}.log",
            )

        sidecars = [Sidecar(each, container(each)) for each in spec.get("initContainers", [])]
        (main,) = spec["containers"]
        return Pod(name, interface, spec, container(main), sidecars)

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


def _as_endpoint(workload: Workload) -> Endpoint:
    return Endpoint(workload.name, workload.manifest["metadata"]["namespace"], labels=workload.labels)


def _decoded(secret: Manifest) -> dict[str, str]:
    return {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
