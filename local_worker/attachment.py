"""The worker's stream to the global scheduler: who it is, how loaded it is, what it cached and finished."""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable

import grpc

from fairlead.blocks import pack_digests, runs
from fairlead.rpc.cancellation import reraise_cancellation
from fairlead.rpc.channel import open_channel, secret_metadata
from fairlead.v1 import scheduler_pb2, scheduler_pb2_grpc
from local_worker.loop import Outbox

log = logging.getLogger(__name__)
REPORT_SECONDS = 0.05  # the contract is at least ten reports a second
RECONNECT_SECONDS = 0.2
# A worker whose steps keep failing asks for no requests for so long; then the next one shows whether it has recovered.
REST_SECONDS = 5.0


class Attachment:
    """Attaches, reports, and re-attaches for as long as it runs.

    It knows the cache and the requests from what the loop delivers, so that a new stream begins with a snapshot that
    fits what follows on it, without a look into another thread's state.
    """

    def __init__(
        self,
        *,
        scheduler: str,
        secret: str,
        worker: str,
        address: str,
        model: scheduler_pb2.ModelInfo,
        drain: Callable[[], None],
    ) -> None:
        self._scheduler = scheduler
        self._metadata = secret_metadata(secret)
        self._hello = scheduler_pb2.Hello(worker=worker, instance=uuid.uuid4().hex, address=address, model=model)
        self._drain = drain
        self._load = scheduler_pb2.Load()
        self._services: dict[str, scheduler_pb2.ClientService] = {}
        self._unsent: dict[str, scheduler_pb2.ClientService] = {}
        self._oldest: float | None = None
        self._rests_until = 0.0
        self._delivered_at = 0.0
        self._cached: dict[int, int] = {}  # digest -> parent, of every cached block, parents first
        self._requests: dict[tuple[str, int], None] = {}  # waiting and running
        # Digest -> parent, or None when evicted: the last word per digest, however many turns one report covers.
        self._blocks: dict[int, int | None] = {}
        self._accepted: list[scheduler_pb2.RequestKey] = []
        self._ended: list[scheduler_pb2.RequestEnd] = []
        self._news = asyncio.Event()
        self.draining = False
        self.attached = asyncio.Event()

    def deliver(self, out: Outbox) -> None:
        """Take in one turn of the engine loop; called on the event loop."""
        self._oldest = out.oldest_queued_at
        self._rests_until = 0.0 if out.healthy else time.monotonic() + REST_SECONDS
        for service in out.load.services:
            self._services[service.client] = self._unsent[service.client] = service
        del out.load.services[:]
        self._load = out.load
        self._delivered_at = time.monotonic()
        self._deliver_blocks(out)
        self._requests.update(dict.fromkeys((key.request_id, key.attempt) for key in out.accepted))
        for end in out.ended:
            self._requests.pop((end.request_id, end.attempt), None)
        self._accepted.extend(out.accepted)
        self._ended.extend(out.ended)
        self._news.set()

    def _deliver_blocks(self, out: Outbox) -> None:
        # Taken out before they are put in: the order is that of the last word.
        for digest in out.evicted:
            self._cached.pop(digest, None)
            self._blocks.pop(digest, None)
            self._blocks[digest] = None
        for digest, parent in out.cached:
            self._cached.pop(digest, None)
            self._cached[digest] = parent
            self._blocks.pop(digest, None)
            self._blocks[digest] = parent

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                async with open_channel(self._scheduler) as channel:
                    await self._attach(scheduler_pb2_grpc.SchedulerStub(channel))
            except grpc.aio.AioRpcError as error:
                reraise_cancellation()
                log.warning("scheduler is away", extra={"scheduler": self._scheduler, "error": error.details()})
            self.attached.clear()
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _attach(self, stub: scheduler_pb2_grpc.SchedulerStub) -> None:
        call = stub.Attach(self._reports(), metadata=self._metadata, wait_for_ready=True)
        async for command in call:
            match command.WhichOneof("kind"):
                case "attached":
                    log.info("attached", extra={"scheduler": self._scheduler})
                    self.attached.set()
                case "drain":
                    self._drain()

    async def _reports(self) -> AsyncIterator[scheduler_pb2.WorkerReport]:
        """The stream's only writer."""
        hello = scheduler_pb2.Hello()
        hello.CopyFrom(self._hello)
        # Events gathered so far are in the snapshot, or will never matter to this scheduler.
        self._blocks, self._accepted, self._ended = {}, [], []
        hello.cached.extend(_runs(self._cached.items()))
        hello.requests.extend(scheduler_pb2.RequestKey(request_id=id_, attempt=n) for id_, n in self._requests)
        yield scheduler_pb2.WorkerReport(hello=hello)
        self._unsent = dict(self._services)
        while True:
            yield scheduler_pb2.WorkerReport(load=self._current_load())
            if self._blocks or self._accepted or self._ended:
                yield scheduler_pb2.WorkerReport(progress=self._take_progress())
            try:
                async with asyncio.timeout(REPORT_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                pass
            self._news.clear()

    def _take_progress(self) -> scheduler_pb2.Progress:
        progress = scheduler_pb2.Progress(
            accepted=self._accepted,
            ended=self._ended,
            evicted=pack_digests([digest for digest, parent in self._blocks.items() if parent is None]),
            cached=_runs((digest, parent) for digest, parent in self._blocks.items() if parent is not None),
        )
        self._blocks, self._accepted, self._ended = {}, [], []
        return progress

    def _current_load(self) -> scheduler_pb2.Load:
        load = scheduler_pb2.Load()
        load.CopyFrom(self._load)
        now = time.monotonic()
        load.draining = self.draining or now < self._rests_until
        load.queue_seconds = 0.0 if self._oldest is None else now - self._oldest
        load.stalled_seconds = now - self._delivered_at if load.running or load.waiting else 0.0
        load.services.extend(self._unsent.values())
        self._unsent = {}
        return load


def _runs(links: Iterable[tuple[int, int]]) -> list[scheduler_pb2.BlockRun]:
    return [scheduler_pb2.BlockRun(parent=run.parent, digests=run.digests) for run in runs(links)]
