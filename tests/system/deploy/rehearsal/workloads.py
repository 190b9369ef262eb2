"""Deployments and StatefulSets: as many pods as wanted, and how they are replaced."""

import asyncio
import itertools
from collections.abc import Callable

from tests.system.deploy.forms import Manifest
from tests.system.deploy.rehearsal.pod import Pod

READY_SECONDS = 300.0
StartPod = Callable[[Manifest, str], Pod]


class Workload:
    """One Deployment or StatefulSet; `ended` keeps what became of earlier pods."""

    def __init__(self, manifest: Manifest, start_pod: StartPod) -> None:
        self.name: str = manifest["metadata"]["name"]
        self.manifest = manifest
        self.pods: list[Pod] = []
        self.ended: list[Pod] = []
        self._start_pod = start_pod
        self._numbers = itertools.count()
        self._is_stateful = manifest["kind"] == "StatefulSet"
        self._ending: list[asyncio.Task[None]] = []

    @property
    def labels(self) -> dict[str, str]:
        """Those of its pods."""
        labels: dict[str, str] = self.manifest["spec"]["template"]["metadata"]["labels"]
        return labels

    @property
    def ports(self) -> dict[str, int]:
        """Those of its pods' container, by name."""
        [container] = self.manifest["spec"]["template"]["spec"]["containers"]
        return {port["name"]: port["containerPort"] for port in container["ports"]}

    async def apply(self, manifest: Manifest) -> None:
        """Roll pods of another template out, and have as many as the manifest says, or as there are if it does not."""
        before, self.manifest = self.manifest, manifest
        claims = [each["spec"].get("volumeClaimTemplates") for each in (before, manifest)]
        assert claims[0] == claims[1], "Kubernetes refuses to change them in place"
        if before["spec"]["template"] != manifest["spec"]["template"]:
            await self.roll()
        await self.scale(manifest["spec"].get("replicas", len(self.pods) or 1))

    async def scale(self, replicas: int) -> None:
        """Add pods and wait until they are ready, or end the newest ones and wait until they are gone."""
        added = [self._add() for _ in range(replicas - len(self.pods))]
        await asyncio.gather(*(self._available(pod) for pod in added))
        await asyncio.gather(*(self._end(pod) for pod in self.pods[replicas:]))

    async def roll(self) -> None:
        """Replace every pod, as the manifest's strategy says."""
        if self._is_stateful:
            for pod in reversed(self.pods[:]):
                await self._end(pod)
                await self._available(self._add(pod.name))
        elif self.manifest["spec"].get("strategy", {}).get("type") == "Recreate":
            count = len(self.pods)
            await asyncio.gather(*(self._end(pod) for pod in self.pods[:]))
            await self.scale(count)
        else:  # one more, then one less
            for pod in self.pods[:]:
                await self._available(self._add())
                self._forget(pod)
                self._ending.append(asyncio.create_task(pod.terminate()))

    async def stop(self) -> None:
        """End every pod."""
        await asyncio.gather(*self._ending, *(self._end(pod) for pod in self.pods[:]))

    def _add(self, name: str = "") -> Pod:
        number = len(self.pods) if self._is_stateful else next(self._numbers)
        pod = self._start_pod(self.manifest, name or f"{self.name}-{number}")
        self.pods.append(pod)
        self.pods.sort(key=lambda pod: (len(pod.name), pod.name))
        return pod

    async def _available(self, pod: Pod) -> None:
        """Ready for as long as `minReadySeconds` asks."""
        wanted = self.manifest["spec"].get("minReadySeconds", 0)
        async with asyncio.timeout(READY_SECONDS):
            await pod.available(wanted)

    async def _end(self, pod: Pod) -> None:
        self._forget(pod)
        await pod.terminate()

    def _forget(self, pod: Pod) -> None:
        self.pods.remove(pod)
        self.ended.append(pod)
