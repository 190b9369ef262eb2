"""Probes, as a kubelet does them."""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.system.deploy.rehearsal.container import Container


@dataclass(frozen=True, slots=True)
class Probe(ABC):
    """One of a container's probes; what is not given has Kubernetes' defaults."""

    period: float
    timeout: float
    failures: int

    @abstractmethod
    async def holds(self) -> bool:
        """Ask once."""

    async def until_it_holds(self) -> bool:
        """Ask until it holds; False when it failed too often."""
        for _ in range(self.failures):
            if await self.holds():
                return True
            await asyncio.sleep(self.period)
        return False

    async def until_it_fails(self) -> None:
        """Return when it failed so often in a row."""
        failed = 0
        while failed < self.failures:
            await asyncio.sleep(self.period)
            failed = 0 if await self.holds() else failed + 1


@dataclass(frozen=True, slots=True)
class CommandProbe(Probe):
    """It holds when its command ends with status 0 in the container's network."""

    container: Container
    command: Sequence[str]

    @classmethod
    def of(cls, description: dict[str, Any], container: Container) -> Self:
        """From a manifest."""
        return cls(*_timing(description), container, description["exec"]["command"])

    async def holds(self) -> bool:
        return (await self.container.execute(*self.command))[0] == 0


@dataclass(frozen=True, slots=True)
class PortProbe(Probe):
    """It holds when the port can be connected to, and the gRPC health service there, if it is asked, agrees."""

    address: str
    service: str | None  # of the gRPC health service; None: to connect is enough

    @classmethod
    def of(cls, description: dict[str, Any], address: str, ports: Mapping[str, int]) -> Self:
        """From a manifest: gRPC and TCP probes are used there. `ports`: the container's, by name."""
        grpc_probe = description.get("grpc")
        port = (grpc_probe or description["tcpSocket"])["port"]
        service = grpc_probe.get("service", "") if grpc_probe else None
        return cls(*_timing(description), f"{address}:{ports.get(port, port)}", service)

    async def holds(self) -> bool:
        """Ask once, over a connection of its own."""
        return await (self._connects() if self.service is None else self._serves(self.service))

    async def _connects(self) -> bool:
        host, _, port = self.address.rpartition(":")
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(self.timeout):
                _, writer = await asyncio.open_connection(host, int(port))
            writer.close()
            return True
        return False

    async def _serves(self, service: str) -> bool:
        async with grpc.aio.insecure_channel(self.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            request = health_pb2.HealthCheckRequest(service=service)
            with contextlib.suppress(grpc.aio.AioRpcError):
                reply = await health_pb2_grpc.HealthStub(channel).Check(request, timeout=self.timeout)
                return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)
        return False


def _timing(description: dict[str, Any]) -> tuple[float, float, int]:
    """Period and time-out in seconds, and how many failures in a row count."""
    return (
        description.get("periodSeconds", 10),
        description.get("timeoutSeconds", 1),
        description.get("failureThreshold", 3),
    )
