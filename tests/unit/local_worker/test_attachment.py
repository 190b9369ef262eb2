"""The worker's reports to a scheduler, received by a real gRPC server."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from fairlead.outcomes import Outcome
from fairlead.v1 import scheduler_pb2, scheduler_pb2_grpc
from local_worker.attachment import MOST_SERVICES, SchedulerAttachment, SchedulerAttachments
from local_worker.core.events import (
    ClientAccountReport,
    EngineLoad,
    RequestAccepted,
    RequestEnded,
    RequestEvents,
    WorkerUpdate,
)
from local_worker.wire import to_accepted, to_computed_prompt
from local_worker.worker_snapshot import WorkerSnapshot
from serving import endpoint_names
from serving.blocks import pack_digests, unpack_digests
from serving.endpoint_names import EndpointNames
from serving.kv_events.core.block_rehash import TierChange
from serving.kv_events.core.tiers import DISK, HOST
from serving.rpc.server import Server
from tests.unit.local_worker.engine.driving import make_request

SECRET = "s" * 16
WAIT = 30


class Listener(scheduler_pb2_grpc.SchedulerServicer):
    """A scheduler that only records reports."""

    def __init__(self) -> None:
        self.reports: asyncio.Queue[scheduler_pb2.WorkerReport] = asyncio.Queue()
        self.hang_up = asyncio.Event()
        self.left = asyncio.Event()  # a worker has gone

    async def Attach(
        self, request_iterator: AsyncIterator[scheduler_pb2.WorkerReport], context: object
    ) -> AsyncIterator[scheduler_pb2.WorkerCommand]:
        reading = asyncio.create_task(self._read(request_iterator))
        try:
            yield scheduler_pb2.WorkerCommand(attached=scheduler_pb2.Attached())
            await self.hang_up.wait()
            self.hang_up.clear()
        finally:
            reading.cancel()
            self.left.set()

    async def _read(self, reports: AsyncIterator[scheduler_pb2.WorkerReport]) -> None:
        async for report in reports:
            self.reports.put_nowait(report)

    async def load(self, wanted: Callable[[scheduler_pb2.Load], bool]) -> scheduler_pb2.Load:
        """Return the next reported load for which `wanted` is true."""
        async with asyncio.timeout(WAIT):
            while True:
                report = await self.reports.get()
                if report.HasField("load") and wanted(report.load):
                    return report.load


class AttachedWorker:
    """The worker's side: events go to the snapshot, then to the stream."""

    def __init__(self, scheduler: str, snapshot: WorkerSnapshot) -> None:
        self.snapshot = snapshot
        self.attachment = SchedulerAttachment(
            scheduler=scheduler, secret=SECRET, snapshot=snapshot, drain=lambda: None, flush=lambda: None
        )

    def deliver(self, update: WorkerUpdate) -> None:
        self.snapshot.deliver(update)
        self.attachment.deliver(update)


@pytest.fixture
async def attached(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Listener, AttachedWorker]]:
    """A listener and a worker attached to it; `request.param` is the worker's backoff after failed steps in seconds."""
    listener = Listener()
    server = Server("127.0.0.1:0")
    name = scheduler_pb2.DESCRIPTOR.services_by_name["Scheduler"].full_name
    server.add(scheduler_pb2_grpc.add_SchedulerServicer_to_server, listener, name, SECRET)
    await server.start()
    hello = scheduler_pb2.Hello(
        worker="w", instance="1", address="127.0.0.1:1", model=scheduler_pb2.ModelInfo(name="m")
    )
    worker = AttachedWorker(
        f"127.0.0.1:{server.port}", WorkerSnapshot(hello, backoff_seconds=getattr(request, "param", 60.0))
    )
    running = asyncio.create_task(worker.attachment.run())
    yield listener, worker
    running.cancel()
    await server.stop(grace=0)


async def test_pickers_behind_a_name_are_attached_to_as_they_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each gets what happens from its own attachment on; one that leaves the name loses it."""
    monkeypatch.setattr(endpoint_names, "LOOK_UP_SECONDS", 0.01)
    name = scheduler_pb2.DESCRIPTOR.services_by_name["Scheduler"].full_name
    first, second, addresses = Listener(), Listener(), ["127.0.0.1"]
    servers, port = [], 0
    for host, listener in (("127.0.0.1", first), ("127.0.0.2", second)):
        server = Server(f"{host}:{port}")
        server.add(scheduler_pb2_grpc.add_SchedulerServicer_to_server, listener, name, SECRET)
        await server.start()
        servers.append(server)
        port = server.port

    async def resolve(host: str) -> list[str]:
        return list(addresses)

    hello = scheduler_pb2.Hello(worker="w", instance="1", address="127.0.0.1:1")
    snapshot = WorkerSnapshot(hello)
    attachments = SchedulerAttachments(
        lambda address: SchedulerAttachment(
            scheduler=address, secret=SECRET, snapshot=snapshot, drain=lambda: None, flush=lambda: None
        ),
        [],
        EndpointNames([f"pickers:{port}"], resolve),
    )
    running = asyncio.create_task(attachments.run())
    try:
        async with asyncio.timeout(WAIT):
            assert (await first.reports.get()).hello.worker == "w"
            addresses.append("127.0.0.2")
            assert (await second.reports.get()).hello.worker == "w"
            update = WorkerUpdate(events=RequestEvents([accepted("a")]))
            snapshot.deliver(update)
            for attachment in attachments.all:
                attachment.deliver(update)
            for listener in (first, second):
                while not (report := await listener.reports.get()).progress.accepted:
                    pass
                assert report.progress.accepted[0].request_id == "a"
            addresses.remove("127.0.0.1")
            await first.left.wait()
            assert not second.left.is_set()
    finally:
        running.cancel()
        for server in servers:
            await server.stop(grace=0)


async def test_a_worker_whose_steps_fail_reports_draining_until_one_succeeds(
    attached: tuple[Listener, AttachedWorker],
) -> None:
    listener, worker = attached
    await listener.load(lambda load: not load.draining)
    worker.deliver(WorkerUpdate(healthy=False))
    await listener.load(lambda load: load.draining)
    worker.deliver(WorkerUpdate())
    await listener.load(lambda load: not load.draining)


async def test_the_load_is_reported_now_and_then_but_a_queue_or_a_drain_before_that(
    attached: tuple[Listener, AttachedWorker],
) -> None:
    listener, worker = attached
    await listener.load(lambda load: True)
    regular = worker.attachment.pacing.load_due
    worker.deliver(WorkerUpdate(load=EngineLoad(running=1)))
    assert worker.attachment.pacing.load_due == regular, "this is no reason for a report"
    await listener.load(lambda load: load.running == 1)
    before = worker.attachment.pacing.load_due
    worker.deliver(WorkerUpdate(load=EngineLoad(waiting=1, running=1)))
    assert worker.attachment.pacing.load_due < before
    assert (await listener.load(lambda load: True)).waiting == 1
    worker.snapshot.draining = True
    before = worker.attachment.pacing.load_due
    worker.attachment.report_at_once()
    assert worker.attachment.pacing.load_due < before
    assert (await listener.load(lambda load: True)).draining


@pytest.mark.parametrize("attached", [1.0], indirect=True)
async def test_draining_after_failed_steps_ends_by_itself(attached: tuple[Listener, AttachedWorker]) -> None:
    listener, worker = attached
    await listener.load(lambda load: not load.draining)
    worker.deliver(WorkerUpdate(healthy=False))
    await listener.load(lambda load: load.draining)
    await listener.load(lambda load: not load.draining)


def accepted(name: str) -> RequestAccepted:
    request = make_request([1] * 10)
    request.id, request.client, request.model = name, "ann", "m"
    return RequestAccepted(request, cached_tokens=0)


async def test_events_are_reported_as_they_happen_and_the_latest_change_counts(
    attached: tuple[Listener, AttachedWorker],
) -> None:
    listener, worker = attached
    async with asyncio.timeout(WAIT):
        assert (await listener.reports.get()).hello.worker == "w"
        await listener.load(lambda load: True)
        key = accepted("r")
        worker.deliver(WorkerUpdate(cached=((1, 0), (2, 1), (5, 0)), evicted=(), events=RequestEvents([key])))
        worker.deliver(WorkerUpdate(cached=((3, 2),), evicted=(5,), events=RequestEvents(computed=[key.request])))
        while not (report := await listener.reports.get()).HasField("progress"):
            pass
    (run,) = report.progress.cached
    assert (run.parent, run.digests) == (0, pack_digests([1, 2, 3]))
    assert report.progress.evicted == pack_digests([5])
    assert list(report.progress.accepted) == [to_accepted(key)]
    assert list(report.progress.computed) == [to_computed_prompt(key.request)]


async def test_changed_blocks_wait_for_the_next_request_that_begins_or_ends(
    attached: tuple[Listener, AttachedWorker],
) -> None:
    listener, worker = attached
    async with asyncio.timeout(WAIT):
        await listener.load(lambda load: True)
        worker.deliver(WorkerUpdate(cached=((1, 0),)))
        while not (await listener.reports.get()).HasField("progress"):
            pass
        worker.deliver(WorkerUpdate(cached=((2, 1),)))
        of_blocks = worker.attachment.pacing.progress_due
        worker.deliver(WorkerUpdate(events=RequestEvents([accepted("r")])))
        assert worker.attachment.pacing.progress_due < of_blocks
        while not (report := await listener.reports.get()).HasField("progress"):
            pass
    assert list(report.progress.accepted) == [to_accepted(accepted("r"))]
    assert [run.digests for run in report.progress.cached] == [pack_digests([2])]


async def test_a_new_stream_begins_with_what_is_cached_and_running(
    attached: tuple[Listener, AttachedWorker],
) -> None:
    listener, worker = attached
    keys = [accepted(name) for name in "abc"]
    ended = RequestEvents(ended=[RequestEnded(keys[0].request, Outcome.COMPLETED)])
    async with asyncio.timeout(WAIT):
        await listener.load(lambda load: True)
        worker.deliver(WorkerUpdate(cached=((1, 0), (2, 1), (4, 1)), evicted=(), events=RequestEvents(keys)))
        worker.deliver(WorkerUpdate(cached=(), evicted=(2,), events=ended))
        worker.deliver(WorkerUpdate(events=RequestEvents(computed=[keys[2].request])))
        listener.hang_up.set()
        while not (report := await listener.reports.get()).HasField("hello") or not report.hello.requests:
            pass
    waiting, computed = report.hello.requests
    assert waiting == to_accepted(keys[1])
    assert (computed.request_id, computed.cached_tokens) == ("c", computed.prompt_tokens)
    assert [(run.parent, run.digests) for run in report.hello.cached] == [(0, pack_digests([1, 4]))]


def idle(client: str) -> ClientAccountReport:
    return ClientAccountReport(client, 1.0, 2.0, 3.0, 0, 0)


async def test_a_new_stream_reports_all_accounts_in_messages_of_bounded_size(
    attached: tuple[Listener, AttachedWorker],
) -> None:
    listener, worker = attached
    names = [f"c{number}" for number in range(2 * MOST_SERVICES + 1)]
    async with asyncio.timeout(WAIT):
        await listener.load(lambda load: True)
        listener.hang_up.set()
        worker.deliver(WorkerUpdate(accounts=[idle(name) for name in names]))
        while not (await listener.reports.get()).HasField("hello"):
            pass
    reported: list[str] = []
    sizes: list[int] = []
    while len(reported) < len(names):
        load = await listener.load(lambda load: bool(load.services))
        reported += [service.client for service in load.services]
        sizes.append(len(load.services))
    assert reported == names
    assert sizes == [MOST_SERVICES, MOST_SERVICES, 1]
    last = load.services[-1]
    assert (last.service, last.weighted_service, last.balance, last.waiting, last.running) == (1.0, 2.0, 3.0, 0, 0)


def test_of_idle_clients_the_latest_are_remembered() -> None:
    snapshot = WorkerSnapshot(scheduler_pb2.Hello(), most_idle=1)
    busy = [ClientAccountReport("a", 1.0, 1.0, 0.0, 1, 0), ClientAccountReport("b", 1.0, 1.0, 0.0, 0, 1)]
    snapshot.deliver(WorkerUpdate(accounts=[*busy, idle("c"), idle("d")]))
    assert list(snapshot.services) == ["a", "b", "d"]
    snapshot.deliver(WorkerUpdate(accounts=[idle("a"), busy[0], idle("b")]))
    assert list(snapshot.services) == ["a", "b"]


async def test_requests_without_steps_are_reported(attached: tuple[Listener, AttachedWorker]) -> None:
    listener, worker = attached
    worker.deliver(WorkerUpdate(load=EngineLoad(running=1)))
    await listener.load(lambda load: load.stalled_seconds > 0.1)
    worker.deliver(WorkerUpdate(load=EngineLoad()))
    await listener.load(lambda load: load.stalled_seconds == 0)


async def test_a_scheduler_is_told_what_slower_memories_hold(attached: tuple[Listener, AttachedWorker]) -> None:
    listener, worker = attached
    await listener.load(lambda load: True)
    worker.deliver(WorkerUpdate(slower=[TierChange(HOST, [(1, 0), (2, 1)], []), TierChange(DISK, [(1, 0)], [])]))
    worker.deliver(WorkerUpdate(slower=[TierChange(HOST, [(3, 2)], [2, 1]), TierChange(HOST, [(1, 0)], [3])]))
    told = list[scheduler_pb2.SlowerBlocks]()
    async with asyncio.timeout(WAIT):
        while not told:
            told += (await listener.reports.get()).progress.slower
    host, disk = told
    assert (host.tier, unpack_digests(host.evicted), disk.tier, disk.evicted) == (HOST, (2, 3), DISK, b"")
    assert [(run.parent, unpack_digests(run.digests)) for run in host.cached] == [(0, (1,))]
    snapshot = {message.tier: message for message in worker.snapshot.hello().slower}
    assert {tier: unpack_digests(message.cached[0].digests) for tier, message in snapshot.items()} == {
        HOST: (1,),
        DISK: (1,),
    }
    assert not any(message.evicted for message in snapshot.values())
