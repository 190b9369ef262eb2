"""A simulated fleet: workers that report to a real scheduler as real ones do, and compute nothing."""

import asyncio
import random
from collections.abc import AsyncIterator

import grpc

from fairlead.v1 import scheduler_pb2, scheduler_pb2_grpc
from serving.rpc.channel import secret_metadata

REPORT_SECONDS = 0.25
CHANGED = 50  # clients of which a worker has news in a report, at most
KV_TOKENS = 65_536
SERVED = 40.0  # cost units that such a client was given since the last report


class SimulatedWorker:
    """One worker with a queue in which every client has requests; its reports are drawn with a seed of its own."""

    def __init__(self, number: int, clients: int) -> None:
        self._random = random.Random(number)
        self._name = f"worker-{number:02}"
        self._services = {f"tenant/user-{client:03}": 0.0 for client in range(clients)}
        self._waiting = {name: self._random.randint(1, 4) for name in self._services}
        self._prompts = 0

    async def run(self, scheduler: str, secret: str) -> None:
        """Keep the worker attached to the scheduler until cancelled."""
        async with grpc.aio.insecure_channel(scheduler) as channel:
            stub = scheduler_pb2_grpc.SchedulerStub(channel)
            async for _ in stub.Attach(self._reports(), metadata=secret_metadata(secret)):
                pass

    async def _reports(self) -> AsyncIterator[scheduler_pb2.WorkerReport]:
        model = scheduler_pb2.ModelInfo(
            name="model", block_tokens=16, kv_tokens=KV_TOKENS, max_running=64, max_model_tokens=8192, policy="dlpm"
        )
        yield scheduler_pb2.WorkerReport(
            hello=scheduler_pb2.Hello(worker=self._name, instance="1", address="127.0.0.1:1", models=[model])
        )
        changed = list(self._services)  # the first report is of all
        while True:
            yield scheduler_pb2.WorkerReport(load=self._load(changed))
            await asyncio.sleep(REPORT_SECONDS)
            changed = self._random.sample(list(self._services), min(CHANGED, len(self._services)))

    def _load(self, changed: list[str]) -> scheduler_pb2.Load:
        for name in changed:
            self._services[name] += SERVED * self._random.random()
            self._waiting[name] = self._random.randint(0, 4)
        self._prompts += 1000
        return scheduler_pb2.Load(
            running=self._random.randint(50, 64),
            waiting=sum(self._waiting.values()),
            kv_tokens_used=self._random.randint(40_000, KV_TOKENS),
            step_seconds=self._random.uniform(0.02, 0.03),
            queue_seconds=self._random.uniform(1.0, 5.0),
            prompt_tokens=self._prompts,
            cached_tokens=self._prompts * 3 // 4,
            fairness_bound=50_000.0,
            fairness_gap=self._random.uniform(5_000.0, 9_000.0),
            service_rate=4_000.0,
            services=[
                scheduler_pb2.ClientService(
                    client=name,
                    service=self._services[name],
                    weighted_service=self._services[name],
                    waiting=self._waiting[name],
                    running=1,
                )
                for name in changed
            ],
        )
