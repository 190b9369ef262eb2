"""What a worker tells the scheduler, at a real gRPC server."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from fairlead.rpc.server import Server
from fairlead.v1 import scheduler_pb2, scheduler_pb2_grpc
from local_worker.attachment import Attachment
from local_worker.loop import Outbox

SECRET = "s" * 16
WAIT = 30


class Listener(scheduler_pb2_grpc.SchedulerServicer):
    """A scheduler that only listens."""

    def __init__(self) -> None:
        self.reports: asyncio.Queue[scheduler_pb2.WorkerReport] = asyncio.Queue()

    async def Attach(
        self, request_iterator: AsyncIterator[scheduler_pb2.WorkerReport], context: object
    ) -> AsyncIterator[scheduler_pb2.WorkerCommand]:
        async for report in request_iterator:
            self.reports.put_nowait(report)
        yield scheduler_pb2.WorkerCommand()

    async def load(self, wanted: Callable[[scheduler_pb2.Load], bool]) -> scheduler_pb2.Load:
        """The next report of a load that is as `wanted`."""
        async with asyncio.timeout(WAIT):
            while True:
                report = await self.reports.get()
                if report.HasField("load") and wanted(report.load):
                    return report.load


@pytest.fixture
async def attached() -> AsyncIterator[tuple[Listener, Attachment]]:
    listener = Listener()
    server = Server("127.0.0.1:0", secret=SECRET)
    name = scheduler_pb2.DESCRIPTOR.services_by_name["Scheduler"].full_name
    server.add(scheduler_pb2_grpc.add_SchedulerServicer_to_server, listener, name)
    await server.start()
    attachment = Attachment(
        scheduler=f"127.0.0.1:{server.port}",
        secret=SECRET,
        worker="w",
        address="127.0.0.1:1",
        model=scheduler_pb2.ModelInfo(name="m"),
        snapshot=lambda: (7,),
        drain=lambda: None,
    )
    running = asyncio.create_task(attachment.run())
    yield listener, attachment
    running.cancel()
    await server.stop(grace=0)


async def test_a_worker_whose_steps_fail_asks_for_no_requests_until_one_succeeds(
    attached: tuple[Listener, Attachment],
) -> None:
    listener, attachment = attached
    await listener.load(lambda load: not load.draining)
    attachment.deliver(Outbox(healthy=False))
    await listener.load(lambda load: load.draining)
    attachment.deliver(Outbox())
    await listener.load(lambda load: not load.draining)


async def test_a_worker_that_rests_asks_again_by_itself(
    attached: tuple[Listener, Attachment], monkeypatch: pytest.MonkeyPatch
) -> None:
    listener, attachment = attached
    monkeypatch.setattr("local_worker.attachment.REST_SECONDS", 0.2)
    attachment.deliver(Outbox(healthy=False))
    await listener.load(lambda load: load.draining)
    await listener.load(lambda load: not load.draining)


async def test_events_come_as_they_happen_and_the_last_word_counts(attached: tuple[Listener, Attachment]) -> None:
    listener, attachment = attached
    async with asyncio.timeout(WAIT):
        hello = (await listener.reports.get()).hello
        assert hello.worker == "w"
        assert len(hello.cached) == 8
        await listener.load(lambda load: True)
        attachment.deliver(Outbox(cached=(1, 2), evicted=()))
        attachment.deliver(Outbox(cached=(), evicted=(1,)))
        while not (report := await listener.reports.get()).HasField("progress"):
            pass
    assert report.progress.cached == (2).to_bytes(8, "little")
    assert report.progress.evicted == (1).to_bytes(8, "little")
