"""The worker's stream to one scheduler: its identity, its load, its cached blocks and its finished requests."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import islice

import grpc

from fairlead.rpc.cancellation import reraise_cancellation
from fairlead.v1 import scheduler_pb2, scheduler_pb2_grpc
from local_worker.core.delivery import ReportPacing
from local_worker.core.events import ClientAccountReport, RequestAccepted, RequestEnded, WorkerUpdate
from local_worker.core.request import Request
from local_worker.wire import to_accepted, to_block_runs, to_client_service, to_computed_prompt, to_request_end
from local_worker.worker_snapshot import SlowerBlocks, WorkerSnapshot
from serving.blocks import pack_digests
from serving.endpoint_names import EndpointNames
from serving.rpc.channel import open_channel, secret_metadata
from serving.rpc.mutual_tls import MutualTls

log = logging.getLogger(__name__)
RECONNECT_SECONDS = 0.2
# A ping wakes a scheduler's threads as a report does. It is needed only to detect a scheduler that is stopped, of which
# nothing is lost: where the path breaks, a report that is not acknowledged within 3 s ends the connection.
OPTIONS = [("grpc.keepalive_time_ms", 10_000)]
# Largest number of accounts in one report; later reports carry the rest. All accounts in one message could exceed its
# size limit, and would delay the scheduler's decisions while it reads them.
MOST_SERVICES = 1_000


class SchedulerAttachment:
    """The connection to one scheduler, opened again after each failure. Every scheduler has one, standbys included."""

    def __init__(
        self,
        *,
        scheduler: str,
        secret: str,
        snapshot: WorkerSnapshot,
        drain: Callable[[], None],
        flush: Callable[[], None],
        mutual_tls: MutualTls | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._mutual_tls = mutual_tls
        self._metadata = secret_metadata(secret)
        self._snapshot = snapshot
        self._drain = drain
        self._flush = flush
        self._services: dict[str, ClientAccountReport] = {}  # accounts to report, the longest pending first
        # Digest -> parent, or None when evicted: the latest change of each digest since the last report.
        self._blocks: dict[int, int | None] = {}
        self._slower = SlowerBlocks()
        self._accepted: list[RequestAccepted] = []
        self._computed: list[Request] = []
        self._ended: list[RequestEnded] = []
        self._told = scheduler_pb2.Load()  # the load of the last report
        self.pacing = ReportPacing()
        self._wake = asyncio.Event()  # set where the next report may be due earlier than was known
        self._attached = False

    def deliver(self, update: WorkerUpdate) -> None:
        """Queue the update of one turn of the engine loop; called on the event loop, after the snapshot's `deliver`."""
        if not self._attached:  # the next snapshot contains these events
            return
        due = self.pacing.due
        for service in update.accounts:
            self._services[service.client] = service
        # Removed before they are inserted: the order is that of the latest changes.
        for digest in update.evicted:
            self._blocks.pop(digest, None)
            self._blocks[digest] = None
        for digest, parent in update.cached:
            self._blocks.pop(digest, None)
            self._blocks[digest] = parent
        self._accepted.extend(update.events.accepted)
        self._computed.extend(update.events.computed)
        self._ended.extend(update.events.ended)
        if update.events.accepted or update.events.computed or update.events.ended:
            self.pacing.requests_changed()
        if update.slower:
            self._slower.changed(update.slower, keeps_evicted=True)
        if update.evicted or update.cached or update.slower:
            self.pacing.blocks_changed()
        if update.load is not None:
            self.pacing.queue_is(update.load.waiting)
        if self._told.draining != self._snapshot.is_draining:
            self.pacing.load_is_urgent()
        if self.pacing.due < due:
            self._wake.set()

    def report_at_once(self) -> None:
        """Report the load now, because the worker begins to drain."""
        self.pacing.load_is_urgent()
        self._wake.set()

    async def run(self) -> None:
        """Attach and report until cancelled; after a failure attach again."""
        while True:
            try:
                async with open_channel(self._scheduler, self._mutual_tls, OPTIONS) as channel:
                    # A call with wait_for_ready would take its snapshot now and collect events until it is connected.
                    await channel.channel_ready()
                    await self._attach(scheduler_pb2_grpc.SchedulerStub(channel))
            except grpc.aio.AioRpcError as error:
                reraise_cancellation()
                log.warning("scheduler is away", extra={"scheduler": self._scheduler, "error": error.details()})
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _attach(self, stub: scheduler_pb2_grpc.SchedulerStub) -> None:
        call = stub.Attach(self._reports(), metadata=self._metadata)
        try:
            async for command in call:
                match command.WhichOneof("kind"):
                    case "attached":
                        log.info("attached", extra={"scheduler": self._scheduler})
                    case "drain":
                        self._drain()
                    case "flush":
                        self._flush()
                        log.info("prefix cache flushed", extra={"scheduler": self._scheduler})
        finally:
            self._attached = False

    async def _reports(self) -> AsyncIterator[scheduler_pb2.WorkerReport]:
        """Yield the messages of one stream, of which it is the only writer."""
        self._blocks, self._accepted, self._computed, self._ended = {}, [], [], []
        self._slower = SlowerBlocks()
        self._services = dict(self._snapshot.services.items())
        self.pacing = ReportPacing()
        self._attached = True
        yield scheduler_pb2.WorkerReport(hello=self._snapshot.hello())
        loop = asyncio.get_running_loop()
        while True:
            if (now := loop.time()) >= self.pacing.load_due:
                yield scheduler_pb2.WorkerReport(load=self._take_load(now))
            if (now := loop.time()) >= self.pacing.progress_due:
                yield scheduler_pb2.WorkerReport(progress=self._take_progress(now))
            while loop.time() < self.pacing.due:
                self._wake.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(self.pacing.due):
                        await self._wake.wait()

    def _take_load(self, now: float) -> scheduler_pb2.Load:
        load = self._told = self._snapshot.load()
        for client in list(islice(self._services, MOST_SERVICES)):
            load.services.append(to_client_service(self._services.pop(client)))
        self.pacing.load_told(load.waiting, now)
        if self._services:
            self.pacing.load_is_urgent()
        return load

    def _take_progress(self, now: float) -> scheduler_pb2.Progress:
        progress = scheduler_pb2.Progress(
            accepted=map(to_accepted, self._accepted),
            computed=map(to_computed_prompt, self._computed),
            ended=map(to_request_end, self._ended),
            evicted=pack_digests([digest for digest, parent in self._blocks.items() if parent is None]),
            cached=to_block_runs((digest, parent) for digest, parent in self._blocks.items() if parent is not None),
            slower=self._slower.messages(),
        )
        self._blocks, self._accepted, self._computed, self._ended = {}, [], [], []
        self._slower = SlowerBlocks()
        self.pacing.progress_told(now)
        return progress


class SchedulerAttachments:
    """An attachment to each of `schedulers`, and to each address that `pickers` have, as these come and go."""

    def __init__(
        self,
        attach: Callable[[str], SchedulerAttachment],
        schedulers: Sequence[str],
        pickers: EndpointNames | None = None,
    ) -> None:
        self._attach = attach
        self._named = [attach(address) for address in schedulers]
        self.all = self._named
        self._pickers = pickers
        self._found: dict[str, tuple[SchedulerAttachment, asyncio.Task[None]]] = {}  # by a picker's address

    def report_at_once(self) -> None:
        """Report the load to each now, because the worker begins to drain."""
        for attachment in self.all:
            attachment.report_at_once()

    async def run(self) -> None:
        """Attach and report until cancelled; a mistake is raised in an ExceptionGroup."""
        async with asyncio.TaskGroup() as tasks:
            for attachment in self._named:
                tasks.create_task(attachment.run())

            async def changed(addresses: list[str]) -> None:
                for address in [address for address in self._found if address not in addresses]:
                    _, task = self._found.pop(address)
                    task.cancel()
                for address in addresses:
                    if address not in self._found:
                        attachment = self._attach(address)
                        self._found[address] = attachment, tasks.create_task(attachment.run())
                self.all = [*self._named, *[attachment for attachment, _ in self._found.values()]]

            if self._pickers is not None:
                await changed(self._pickers.endpoints)
                await self._pickers.follow(changed)
