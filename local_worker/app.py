"""The worker's composition root: it creates the objects that live as long as the process."""

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Sequence
from typing import Any

from fairlead.v1 import scheduler_pb2, worker_pb2, worker_pb2_grpc
from local_worker import sizes
from local_worker.attachment import SchedulerAttachment
from local_worker.backend import Backend
from local_worker.config import WorkerConfig
from local_worker.core.batcher import Batcher
from local_worker.core.limits import AdmissionMode, BatchLimits
from local_worker.core.policies import POLICIES, QueuePolicyConfig
from local_worker.core.prefix_cache import PrefixCache
from local_worker.engine_backend import EngineBackend
from local_worker.fair_executor import FairExecutor
from local_worker.loop import EngineLoop
from local_worker.metrics import WorkerMetrics
from local_worker.model import ServedModel, load_model
from local_worker.prompt_encoder import PromptEncoder
from local_worker.service import TokenizerService, WorkerService
from local_worker.step_events import StepEvents
from local_worker.worker_snapshot import WorkerSnapshot
from serving.config import cost_function, load
from serving.cost import cost_name
from serving.environment import ServiceName
from serving.process import Serving, configure_logging, run
from serving.rpc.server import Server
from serving.telemetry.metrics import Metrics
from serving.telemetry.records import WORKER

log = logging.getLogger(__name__)


def make_batcher(config: WorkerConfig, model: ServedModel, limits: BatchLimits) -> Batcher:
    """Build the batcher, with its policy and cache, that `config` and `limits` describe."""
    cost = cost_function(config.cost)
    together = limits.max_running * model.longest
    policy = POLICIES[config.policy](
        QueuePolicyConfig(
            quantum_tokens=config.quantum_tokens,
            cost=cost,
            max_input_tokens=limits.max_prompt_tokens,
            max_output_tokens=model.longest,
            block_tokens=model.block_tokens,
            most_output_tokens=together
            if limits.admission is AdmissionMode.OPTIMISTIC
            else min(together, model.kv_tokens),
        )
    )
    cache = PrefixCache(model.kv_tokens // model.block_tokens, model.block_tokens)
    return Batcher(policy, cache, cost, limits, model.tokenizer.eos_token_ids)


class Worker:
    """The objects of one worker process, and the order in which they start and stop."""

    def __init__(self, config: WorkerConfig, model: ServedModel) -> None:
        self._config = config
        self._event_loop = asyncio.get_running_loop()
        self._loop_end: asyncio.Future[None] = self._event_loop.create_future()
        limits = sizes.limits(config, model.device, model.longest, model.block_tokens)
        self._batcher = make_batcher(config, model, limits)
        loop = EngineLoop(self._batcher, model.engine, self._post_events, self._loop_died)
        prompts = PromptEncoder(
            model.tokenizer,
            model.vocab_size,
            model.block_tokens,
            config.secret,
            model.revisions,
            limits.max_prompt_tokens,
        )
        self._backend: Backend = EngineBackend(prompts, loop)
        self._service = WorkerService(self._backend)
        tokenizer = TokenizerService(self._backend, FairExecutor("tokenizer"))
        mutual_tls = config.mutual_tls
        self._server = Server(
            config.listen,
            credentials=mutual_tls.server() if mutual_tls else None,
            health_listen=config.health_listen,
        )
        secret = config.secret
        self._server.add(worker_pb2_grpc.add_WorkerServicer_to_server, self._service, _name("Worker"), secret)
        self._server.add(worker_pb2_grpc.add_TokenizerServicer_to_server, tokenizer, _name("Tokenizer"), secret)
        address = config.advertise or f"{config.listen.rpartition(':')[0]}:{self._server.port}"
        models = [self._model_info(name, model, limits) for name in model.revisions]
        hello = scheduler_pb2.Hello(
            worker=config.name or f"{socket.gethostname()}-{self._server.port}",
            instance=uuid.uuid4().hex,
            address=address,
            model=models[0],
            models=models,
        )
        self._metrics = Metrics(WORKER, config.metrics, os.environ, hello.instance)
        policy = self._batcher.policy
        self._measured = WorkerMetrics(self._metrics.meter, models, lambda: policy.balance_range_micro)
        self._snapshot = WorkerSnapshot(hello, lambda: self._backend.stepping_since)
        self._attachments = [
            SchedulerAttachment(
                scheduler=address,
                secret=config.secret,
                snapshot=self._snapshot,
                drain=self.begin_drain,
                flush=self._backend.flush_cache,
                mutual_tls=mutual_tls,
            )
            for address in config.schedulers
        ]
        self._healthy = True
        self._stop = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then drain and stop."""
        self._stop = stop
        self._backend.start()
        await self._metrics.start()
        await self._server.start()
        log.info(
            "listening",
            extra={"service": "local_worker", "port": self._server.port, "metrics_port": self._metrics.port},
        )
        measuring = asyncio.create_task(self._measured.run(self._snapshot.load))
        attaching = [asyncio.create_task(attachment.run()) for attachment in self._attachments]
        stopping = asyncio.create_task(stop.wait())
        try:
            await self._server.set_ready(True)
            ends: list[asyncio.Future[Any]] = [*attaching, measuring, self._loop_end, stopping]
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
            await self._finish()
        finally:
            for task in (*attaching, measuring):
                task.cancel()
            self._backend.stop()
            await self._metrics.shutdown()

    def begin_drain(self) -> None:
        """Start to drain on a scheduler's command, as on SIGTERM."""
        self._stop.set()

    async def _finish(self) -> None:
        log.info("draining")
        self._snapshot.draining = True
        for attachment in self._attachments:
            attachment.report_at_once()
        await self._server.set_ready(False)
        try:
            async with asyncio.timeout(self._config.drain_seconds):
                await self._service.drain()
        except TimeoutError:
            log.warning("drain timed out: gateways place the remaining requests again")
        await self._server.stop(grace=1.0)

    def _loop_died(self, error: BaseException) -> None:
        self._event_loop.call_soon_threadsafe(self._loop_end.set_exception, RuntimeError(f"engine loop: {error!r}"))

    def _post_events(self, out: StepEvents) -> None:
        self._event_loop.call_soon_threadsafe(self._dispatch_events, out)

    def _dispatch_events(self, out: StepEvents) -> None:
        self._service.deliver(out)
        self._measured.delivered(out.services)
        self._snapshot.deliver(out)
        for attachment in self._attachments:
            attachment.deliver(out)
        if out.healthy != self._healthy:
            self._healthy = out.healthy
            self._event_loop.create_task(self._server.set_ready(out.healthy))

    def _model_info(self, name: str, model: ServedModel, limits: BatchLimits) -> scheduler_pb2.ModelInfo:
        return scheduler_pb2.ModelInfo(
            name=name,
            max_model_tokens=model.longest,
            max_prompt_tokens=limits.max_prompt_tokens,
            vocab_size=model.vocab_size,
            longest_token=model.tokenizer.longest_token,
            block_tokens=model.block_tokens,
            kv_tokens=model.kv_tokens,
            max_running=limits.max_running,
            revision=model.revisions[name],
            engine=model.engine_name,
            policy=self._config.policy,
            admission=self._config.admission,
            cost=cost_name(cost_function(self._config.cost)),
        )


def _name(service: str) -> str:
    return str(worker_pb2.DESCRIPTOR.services_by_name[service].full_name)


def prepare(argv: Sequence[str]) -> Serving:
    """Load the configuration and the model, and return the function that serves; raise ConfigError."""
    config = load(WorkerConfig, ServiceName.WORKER, argv, os.environ, prog="python -m local_worker")
    configure_logging(config.log_level)
    model = load_model(config)

    async def serve(stop: asyncio.Event) -> None:
        await Worker(config, model).run(stop)

    return serve


def main(argv: Sequence[str]) -> int:
    """Run the worker with the arguments `argv`, and return the exit status."""
    return run(lambda: prepare(argv))
