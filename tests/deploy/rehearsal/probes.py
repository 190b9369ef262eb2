"""Probes, as a kubelet does them."""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any, Self

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc


@dataclass(frozen=True, slots=True)
class Probe:
    """One of a container's probes; what is not given has Kubernetes' defaults."""

    address: str
    service: str
    period: float
    timeout: float
    failures: int

    @classmethod
    def of(cls, description: dict[str, Any], address: str) -> Self:
        """From a manifest; only gRPC probes are used there."""
        question = description["grpc"]
        return cls(
            f"{address}:{question['port']}",
            question.get("service", ""),
            description.get("periodSeconds", 10),
            description.get("timeoutSeconds", 1),
            description.get("failureThreshold", 3),
        )

    async def holds(self) -> bool:
        """Ask once, over a connection of its own."""
        async with grpc.aio.insecure_channel(self.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            request = health_pb2.HealthCheckRequest(service=self.service)
            with contextlib.suppress(grpc.aio.AioRpcError):
                reply = await health_pb2_grpc.HealthStub(channel).Check(request, timeout=self.timeout)
                return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)
        return False

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
