"""The endpoints of an InferencePool (inference.networking.k8s.io/v1): the ready pods that it selects, at its ports."""

import asyncio
import logging

import msgspec

from endpoint_picker.kubernetes.cluster_api import ClusterApi, ListMeta
from endpoint_picker.kubernetes.object_watch import ObjectWatch
from serving.endpoint_names import Changed

log = logging.getLogger(__name__)
POOLS = "/apis/inference.networking.k8s.io/v1/namespaces/{}/inferencepools"
PODS = "/api/v1/namespaces/{}/pods"


class LabelSelector(msgspec.Struct, rename="camel"):
    """The labels that pods of a pool have."""

    match_labels: dict[str, str] = {}


class TargetPort(msgspec.Struct):
    """A port at which a pod serves; one with several has an engine at each."""

    number: int


class PoolSpec(msgspec.Struct, rename="camel"):
    """The selector of a pool's pods, and the ports of their engines."""

    selector: LabelSelector
    target_ports: list[TargetPort]


class Pool(msgspec.Struct):
    """An InferencePool selects pods and names their ports."""

    metadata: ListMeta
    spec: PoolSpec


class Condition(msgspec.Struct):
    """A condition of a pod is True, False or Unknown."""

    type: str
    status: str


class PodStatus(msgspec.Struct):
    """The state of a pod as the kubelet reports it."""

    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: list[Condition] | None = None


class Pod(msgspec.Struct):
    """A pod runs one engine or, at several ports, several."""

    metadata: ListMeta
    status: PodStatus

    @property
    def is_ready(self) -> bool:
        """Return whether the pod is to have requests: ready, with an address, and not about to go."""
        is_ready = any(each.type == "Ready" and each.status == "True" for each in self.status.conditions or ())
        return is_ready and bool(self.status.pod_ip) and self.metadata.deletion_timestamp is None


class InferencePool:
    """The endpoints of the InferencePool `name`. See EndpointSource; what was last known of it stays known."""

    def __init__(self, api: ClusterApi, namespace: str, name: str) -> None:
        self.endpoints: list[str] = []
        self.is_known = False
        self._api = api
        self._namespace = namespace
        self._name = name
        selector = {"fieldSelector": f"metadata.name={name}"}
        self._pools = ObjectWatch(api, POOLS.format(namespace), selector, Pool)
        self._pods: ObjectWatch[Pod] | None = None  # of the pool's selector
        self._labels = ""

    @property
    def is_current(self) -> bool:
        """Return whether changes of the pool and of its pods arrive."""
        return self._pools.is_current and (self._pods is None or self._pods.is_current)

    async def follow(self, changed: Changed) -> None:
        watching: asyncio.Task[None] | None = None

        async def tell() -> None:
            told = self.endpoints, self.is_known
            self.endpoints = self._found()
            self.is_known = self._pods is not None and self._pods.is_listed
            if (self.endpoints, self.is_known) != told:
                await changed(self.endpoints)

        async def pool_changed() -> None:
            nonlocal watching
            labels = self._selected_labels()
            if labels != self._labels:
                self._labels = labels
                if watching is not None:
                    watching.cancel()
                watching = None
                self._pods = None
                if labels:
                    path, selector = PODS.format(self._namespace), {"labelSelector": labels}
                    self._pods = ObjectWatch(self._api, path, selector, Pod)
                    watching = tasks.create_task(self._pods.follow(tell))
                    return  # the pods of the former selector remain until those of the new one are listed
            await tell()

        async with asyncio.TaskGroup() as tasks:
            await self._pools.follow(pool_changed)

    def _selected_labels(self) -> str:
        """Return the labels of the pool's pods as Kubernetes writes a selector; empty, which selects none, without."""
        pool = self._pools.objects.get(self._name)
        if pool is None:
            log.warning("there is no such InferencePool", extra={"namespace": self._namespace, "pool": self._name})
            return ""
        return ",".join(f"{key}={value}" for key, value in sorted(pool.spec.selector.match_labels.items()))

    def _found(self) -> list[str]:
        """Return the endpoints as of now: each ready pod at each port, by the names of pods."""
        pool = self._pools.objects.get(self._name)
        if pool is None or self._pods is None:
            return []
        ready = [pod.status.pod_ip for _, pod in sorted(self._pods.objects.items()) if pod.is_ready]
        hosts = [f"[{address}]" if ":" in address else address for address in ready]
        return [f"{host}:{port.number}" for host in hosts for port in pool.spec.target_ports]
