"""The process of a worker: its services, its streams to schedulers, its metrics, and the order of their lives."""

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from fairlead.v1 import scheduler_pb2, worker_pb2, worker_pb2_grpc
from local_worker.attachment import SchedulerAttachment, SchedulerAttachments
from local_worker.backend import Backend
from local_worker.core.events import WorkerUpdate
from local_worker.core.policies import ClassedPolicy, QueuePolicy
from local_worker.fair_executor import FairExecutor
from local_worker.metrics import WorkerMetrics
from local_worker.service import TokenizerService, WorkerService
from local_worker.worker_options import WorkerOptions
from local_worker.worker_snapshot import WorkerSnapshot
from serving.endpoint_names import EndpointNames
from serving.rpc.address import bracketed, is_loopback
from serving.rpc.server import Server
from serving.telemetry.metrics import Metrics
from serving.telemetry.records import WORKER

log = logging.getLogger(__name__)
# It is given two functions, which any thread may call: the first takes updates, the second the error of which the
# backend died.
BackendFactory = Callable[[Callable[[WorkerUpdate], None], Callable[[BaseException], None]], Backend]


class Worker:
    """The objects of one worker process, and the order in which they start and stop."""

    def __init__(
        self,
        options: WorkerOptions,
        models: Sequence[scheduler_pb2.ModelInfo],
        policy: QueuePolicy | ClassedPolicy,
        make_backend: BackendFactory,
        engine: str = "",
        pickers: Sequence[str] = (),
    ) -> None:
        """Create a worker whose `engine`, if it is another process, has this address, host:port.

        It attaches to the schedulers that are in `options`, and to the endpoint pickers of these names.
        """
        self._options = options
        self._event_loop = asyncio.get_running_loop()
        self._backend_end: asyncio.Future[None] = self._event_loop.create_future()
        self._backend = make_backend(self._post_update, self._backend_died)
        self._service = WorkerService(self._backend)
        tokenizer = TokenizerService(self._backend.prompts, FairExecutor("tokenizer"))
        mutual_tls = options.mutual_tls
        self._server = Server(
            options.listen,
            credentials=mutual_tls.server() if mutual_tls else None,
            health_listen=options.health_listen,
        )
        secrets = (options.secret, options.accepted_secret)
        self._server.add(worker_pb2_grpc.add_WorkerServicer_to_server, self._service, _name("Worker"), *secrets)
        self._server.add(worker_pb2_grpc.add_TokenizerServicer_to_server, tokenizer, _name("Tokenizer"), *secrets)
        address = bracketed(options.advertise) or f"{options.listen.rpartition(':')[0]}:{self._server.port}"
        hello = scheduler_pb2.Hello(
            worker=options.name or f"{socket.gethostname()}-{self._server.port}",
            instance=uuid.uuid4().hex,
            address=address,
            model=models[0],
            models=list(models),
            # Beside the worker: at the worker's host, also for others.
            engine_address=f"{address.rpartition(':')[0]}:{engine.rpartition(':')[2]}"
            if is_loopback(engine)
            else engine,
        )
        self._metrics = Metrics(WORKER, options.metrics, os.environ, hello.instance)
        self._measured = WorkerMetrics(self._metrics.meter, models, lambda: policy.balance_range_micro)
        self._snapshot = WorkerSnapshot(hello, lambda: self._backend.stepping_since)
        self._attachments = SchedulerAttachments(
            lambda address: SchedulerAttachment(
                scheduler=address,
                secret=options.secret,
                snapshot=self._snapshot,
                drain=self.begin_drain,
                flush=self._backend.flush_cache,
                mutual_tls=mutual_tls,
            ),
            options.schedulers,
            EndpointNames(pickers) if pickers else None,
        )
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
        attaching = asyncio.create_task(self._attachments.run())
        stopping = asyncio.create_task(stop.wait())
        try:
            await self._server.set_ready(True)
            ends: list[asyncio.Future[Any]] = [attaching, measuring, self._backend_end, stopping]
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
            await self._finish()
        finally:
            for task in (attaching, measuring):
                task.cancel()
            self._backend.stop()
            await self._server.stop(grace=0.0)
            await self._metrics.shutdown()

    def begin_drain(self) -> None:
        """Start to drain on a scheduler's command, as on SIGTERM."""
        self._stop.set()

    async def _finish(self) -> None:
        log.info("draining")
        self._snapshot.draining = True
        self._attachments.report_at_once()
        await self._server.set_ready(False)
        try:
            async with asyncio.timeout(self._options.drain_seconds):
                await self._service.drain()
        except TimeoutError:
            log.warning("drain timed out: gateways place the remaining requests again")
        await self._server.stop(grace=1.0)

    def _backend_died(self, error: BaseException) -> None:
        self._event_loop.call_soon_threadsafe(self._end_with, error)

    def _end_with(self, error: BaseException) -> None:
        if not self._backend_end.done():
            self._backend_end.set_exception(RuntimeError(f"backend: {error!r}"))

    def _post_update(self, update: WorkerUpdate) -> None:
        self._event_loop.call_soon_threadsafe(self._dispatch_update, update)

    def _dispatch_update(self, update: WorkerUpdate) -> None:
        try:
            self._service.deliver(update)
            if update.accounts:
                self._measured.delivered(update.accounts)
            self._snapshot.deliver(update)
            for attachment in self._attachments.all:
                attachment.deliver(update)
        except Exception as error:  # calls whose events are lost would wait for ever; gateways place them again
            log.exception("an update of the backend cannot be delivered")
            self._end_with(error)
        if update.healthy != self._healthy:
            self._healthy = update.healthy
            self._event_loop.create_task(self._server.set_ready(update.healthy))


def _name(service: str) -> str:
    return str(worker_pb2.DESCRIPTOR.services_by_name[service].full_name)
