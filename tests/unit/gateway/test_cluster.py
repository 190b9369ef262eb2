"""Placement, against a real gRPC server in the scheduler's place."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from grpc.aio._channel import Channel
from grpc_health.v1 import health_pb2, health_pb2_grpc
from opentelemetry.metrics import get_meter

from fairlead.errors import FairleadError, Internal, Unavailable
from fairlead.outcomes import Outcome
from fairlead.prompt import as_prompt
from fairlead.v1 import common_pb2, inference_pb2, scheduler_pb2, scheduler_pb2_grpc, worker_pb2
from gateway.call import Call
from gateway.call_log import CallLog
from gateway.core.call_commands import Message
from gateway.core.client_limits import HeldBytesLimiter
from gateway.driver import CallDrivers
from gateway.metrics import CallMetrics
from gateway.tenants import Credentials
from gateway.upstream.cluster import Cluster
from gateway.upstream.placements import PlacementReason
from serving.rpc.server import Server
from serving.telemetry.traces import Traces
from tests.unit.gateway.open_admission import open_admission
from tests.unit.gateway.scripted_worker import SECRET, ScriptedWorker

MODEL = scheduler_pb2.ModelInfo(name="m")
STATE = scheduler_pb2.ClusterState(
    members=[
        scheduler_pb2.Member(worker="a", instance="a1", address="127.0.0.1:1", models=[MODEL]),
        scheduler_pb2.Member(worker="b", instance="b1", address="127.0.0.1:2", models=[MODEL]),
    ],
    pools=[scheduler_pb2.Pool(model="m", overloaded=True)],
    epoch=1,
)


class ScriptedScheduler(scheduler_pb2_grpc.SchedulerServicer):
    """The scheduler's side of the wire: `batches` is what came, `replies` what goes."""

    def __init__(self, listen: str, state: scheduler_pb2.ClusterState) -> None:
        self.server = Server(listen)
        self.server.add(scheduler_pb2_grpc.add_SchedulerServicer_to_server, self, "fairlead.v1.Scheduler", SECRET)
        self.address = f"127.0.0.1:{self.server.port}"
        self.batches: asyncio.Queue[scheduler_pb2.DispatchBatch] = asyncio.Queue()
        self.replies: asyncio.Queue[scheduler_pb2.DispatchReplies] = asyncio.Queue()
        self.opened: list[str] = []  # its streams
        self._states: asyncio.Queue[scheduler_pb2.ClusterState] = asyncio.Queue()
        self.say(state)

    def say(self, state: scheduler_pb2.ClusterState) -> None:
        """To the one who watches."""
        self._states.put_nowait(state)

    async def Dispatch(
        self, request_iterator: AsyncIterator[scheduler_pb2.DispatchBatch], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[scheduler_pb2.DispatchReplies]:
        async def read() -> None:
            async for batch in request_iterator:
                self.batches.put_nowait(batch)

        self.opened.append("Dispatch")
        reader = asyncio.create_task(read())
        try:
            while True:
                yield await self.replies.get()
        finally:
            reader.cancel()

    async def Watch(
        self, request: scheduler_pb2.WatchRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[scheduler_pb2.ClusterState]:
        self.opened.append("Watch")
        while True:
            yield await self._states.get()


class Linked:
    """A cluster that runs against a scripted scheduler, and what it said about changes."""

    def __init__(self, scheduler: ScriptedScheduler) -> None:
        self.scheduler = scheduler
        self.changed = asyncio.Event()
        self.cluster = Cluster([scheduler.address], SECRET, self.changed.set)

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed.clear()
            await self.changed.wait()

    def decided(self) -> dict[PlacementReason, int]:
        return {reason: count for reason, count in self.cluster.placements.items() if count}

    async def answered(self, **answer: Any) -> asyncio.Task[scheduler_pb2.DispatchReply]:
        """A placement under way, to which the scheduler has answered so."""
        placing = asyncio.create_task(self.cluster.place(request()))
        await self.asked(placing)
        reply = scheduler_pb2.DispatchReply(request_id="r", attempt=1, **answer)
        self.scheduler.replies.put_nowait(scheduler_pb2.DispatchReplies(replies=[reply]))
        return placing

    async def asked(self, placing: asyncio.Task[scheduler_pb2.DispatchReply]) -> None:
        """Return when the scheduler is asked for this placement; fail if that ends without it."""
        asking = asyncio.ensure_future(self.scheduler.batches.get())
        await asyncio.wait({placing, asking}, return_when=asyncio.FIRST_COMPLETED)
        assert asking.done(), "the gateway chose by itself"

    def names(self) -> list[str]:
        return [member.worker for member in self.cluster.members.all()]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler's answers are in time, however slow the machine is."""
    monkeypatch.setattr("gateway.upstream.schedulers.DECISION_SECONDS", 120.0)


@pytest.fixture
def late_dispatch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream that is begun first hears that the channel is ready when the other could be open and answered."""
    ready = Channel.channel_ready
    waiting: list[grpc.aio.Channel] = []

    async def first_hears_last(channel: Channel) -> None:
        waiting.append(channel)
        is_first = len(waiting) == 1
        await ready(channel)
        if is_first:
            await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())

    monkeypatch.setattr(Channel, "channel_ready", first_hears_last)


@pytest.fixture
async def linked() -> AsyncIterator[Linked]:
    scripted = ScriptedScheduler("127.0.0.1:0", STATE)
    await scripted.server.start()
    linked = Linked(scripted)
    running = asyncio.create_task(linked.cluster.run())
    await linked.until(lambda: linked.names() == ["a", "b"])
    assert linked.cluster.members.overloaded("m")  # for a second, of which a slow machine may leave a test nothing
    yield linked
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    await linked.cluster.close()
    await scripted.server.stop(0)


def request(request_id: str = "r", excluded: tuple[str, ...] = ()) -> scheduler_pb2.DispatchRequest:
    return scheduler_pb2.DispatchRequest(request_id=request_id, attempt=1, model="m", excluded=excluded)


class SilentCaller:
    """A caller that asks for a few tokens, and goes before any has come."""

    credentials = Credentials()

    async def receive(self) -> inference_pb2.GenerateRequest:
        sampling = common_pb2.SamplingParams(max_tokens=4)
        return inference_pb2.GenerateRequest(model="m", prompt=as_prompt("x"), sampling=sampling)

    def write(self, message: Message) -> bool:
        return False

    def refuse(self, error: FairleadError) -> None:
        assert error.outcome is Outcome.CANCELLED

    def hang_up(self, error: FairleadError) -> None:
        raise AssertionError("nothing is being written")


@pytest.mark.usefixtures("late_dispatch")
async def test_a_scheduler_that_reports_can_be_asked(linked: Linked) -> None:
    assert linked.scheduler.opened == ["Dispatch", "Watch"]


@pytest.mark.usefixtures("patient")
async def test_requests_of_a_tick_share_a_message_and_replies_find_their_request(linked: Linked) -> None:
    placing = [asyncio.create_task(linked.cluster.place(request(request_id))) for request_id in ("r", "s")]
    batch = await linked.scheduler.batches.get()
    assert [item.request_id for item in batch.requests] == ["r", "s"]
    replies = [
        scheduler_pb2.DispatchReply(request_id="s", attempt=1, worker="a", address="127.0.0.1:1"),
        scheduler_pb2.DispatchReply(request_id="r", attempt=2, worker="a", address="127.0.0.1:1"),
        scheduler_pb2.DispatchReply(request_id="r", attempt=1, worker="b", address="127.0.0.1:2", matched_tokens=16),
    ]
    linked.scheduler.replies.put_nowait(scheduler_pb2.DispatchReplies(replies=replies))
    first, second = await asyncio.gather(*placing)
    assert (first.worker, first.address, first.matched_tokens) == ("b", "127.0.0.1:2", 16)
    assert (second.worker, second.address) == ("a", "127.0.0.1:1")


async def test_a_scheduler_that_hangs_holds_nobody_and_gets_its_choice_back(
    linked: Linked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.upstream.schedulers.DECISION_SECONDS", 0.1)
    assert (await linked.cluster.place(request())).worker == "a"
    assert (await linked.scheduler.batches.get()).requests[0].request_id == "r"
    assert (await linked.scheduler.batches.get()).withdrawals[0].request_id == "r"


async def test_a_cancelled_request_is_withdrawn(linked: Linked) -> None:
    placing = asyncio.create_task(linked.cluster.place(request()))
    await linked.scheduler.batches.get()
    placing.cancel()
    assert (await linked.scheduler.batches.get()).withdrawals[0].request_id == "r"


@pytest.mark.usefixtures("patient")
async def test_a_call_that_goes_before_its_worker_was_reached_is_withdrawn(
    linked: Linked, worker: ScriptedWorker
) -> None:
    model = scheduler_pb2.ModelInfo(
        name="m", vocab_size=10, max_prompt_tokens=100, max_model_tokens=200, kv_tokens=200, longest_token=20
    )
    tokenizer = scheduler_pb2.Member(worker="a", instance="a1", address=worker.address, models=[model])
    linked.scheduler.say(scheduler_pb2.ClusterState(epoch=1, members=[tokenizer]))
    await linked.until(lambda: linked.cluster.members.resolve("m").vocab_size == 10)
    journal = CallLog(Traces(), CallMetrics(get_meter("test")))
    drivers = CallDrivers(
        open_admission(linked.cluster), linked.cluster, journal, HeldBytesLimiter(1000, "outputs"), 60.0
    )
    driver = drivers.drive(SilentCaller(), Call(request_id="r", deadline=None))
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute.setblocking(False)
        waiting = asyncio.ensure_future(anext(driver.messages()))
        await linked.scheduler.batches.get()
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        reply = scheduler_pb2.DispatchReply(request_id="r", attempt=1, worker="a", address=address)
        linked.scheduler.replies.put_nowait(scheduler_pb2.DispatchReplies(replies=[reply]))
        connection, _ = await asyncio.get_running_loop().sock_accept(mute)
        with connection:
            waiting.cancel()
            driver.gone()
            assert (await linked.scheduler.batches.get()).withdrawals[0].request_id == "r"


async def test_without_the_scheduler_the_least_loaded_known_worker_is_chosen(linked: Linked) -> None:
    cluster = linked.cluster
    await linked.scheduler.server.stop(0)
    first = await cluster.place(request("r"))
    cluster.link(first).submit(worker_pb2.Submit(request_id="r", attempt=1), lambda event: None)
    second = await cluster.place(request("s"))
    assert (first.worker, second.worker) == ("a", "b")
    with pytest.raises(
        Unavailable, match="each of the 2 workers of model 'm' had the request, and was lost or refused"
    ):
        await cluster.place(request("t", excluded=("a1", "b1")))
    assert (await cluster.place(request("u", excluded=("a0", "b1")))).worker == "a", "not the one that failed"
    await linked.until(lambda: not cluster.members.overloaded("m"))
    assert linked.decided() == {PlacementReason.NO_SCHEDULER: 3, PlacementReason.NO_WORKER: 1}


@pytest.mark.usefixtures("patient")
async def test_a_scheduler_that_stands_by_leaves_the_choice_to_the_gateway(linked: Linked) -> None:
    placing = await linked.answered(unplaced=scheduler_pb2.UNPLACED_STANDBY)
    assert (await placing).worker == "a"
    assert linked.decided() == {PlacementReason.NO_LEADER: 1}


async def test_while_all_schedulers_stand_by_the_gateway_chooses(linked: Linked) -> None:
    linked.scheduler.say(scheduler_pb2.ClusterState(epoch=0))
    await linked.until(lambda: linked.cluster.members.inherited == 2)  # no overload: its time may be over before that
    assert (await linked.cluster.place(request())).worker == "a"
    assert linked.decided() == {PlacementReason.NO_LEADER: 1}


@pytest.mark.usefixtures("patient")
async def test_a_malformed_request_is_refused_and_not_placed_elsewhere(
    linked: Linked, caplog: pytest.LogCaptureFixture
) -> None:
    placing = await linked.answered(
        unplaced=scheduler_pb2.UNPLACED_MALFORMED, problem="requests.weight: must be above 0"
    )
    with pytest.raises(Internal, match="weight: must be above 0"):
        await placing
    assert linked.decided() == {PlacementReason.MALFORMED: 1}
    assert "the scheduler calls a request malformed" in caplog.text


@pytest.mark.usefixtures("patient")
async def test_where_the_scheduler_has_no_worker_only_one_that_it_has_not_found_yet_may_be_chosen(
    linked: Linked,
) -> None:
    placing = await linked.answered(unplaced=scheduler_pb2.UNPLACED_NO_WORKER)
    with pytest.raises(Unavailable, match="no live worker serves model 'm'"):
        await placing
    linked.scheduler.say(scheduler_pb2.ClusterState(epoch=0))
    await linked.until(lambda: not linked.cluster.members.overloaded("m"))
    linked.scheduler.say(scheduler_pb2.ClusterState(epoch=3, members=STATE.members[:1], pools=STATE.pools))
    await linked.until(lambda: linked.cluster.members.overloaded("m"))
    placing = await linked.answered(unplaced=scheduler_pb2.UNPLACED_NO_WORKER)
    assert (await placing).worker == "b", "the leader knows a, and does not want it"
    assert linked.decided() == {PlacementReason.NO_WORKER: 1, PlacementReason.SETTLING: 1}


async def test_overload_of_which_nothing_more_is_heard_is_over(linked: Linked) -> None:
    await linked.until(lambda: not linked.cluster.members.overloaded("m"))
    assert linked.names() == ["a", "b"]
    assert (await asyncio.gather(linked.cluster.place(request()), linked.scheduler.batches.get()))[1].requests
    linked.scheduler.say(STATE)
    await linked.until(lambda: linked.cluster.members.overloaded("m"))


async def test_changes_that_a_scheduler_reports_are_applied_to_what_it_reported_before(linked: Linked) -> None:
    drains = scheduler_pb2.Member(worker="b", instance="b1", load=scheduler_pb2.Load(draining=True), models=[MODEL])
    for change, serving in (({"members": [drains]}, ["a"]), ({"left": ["a"]}, [])):
        linked.scheduler.say(scheduler_pb2.ClusterState(epoch=1, is_change=True, **change))
        await linked.until(lambda: [m.worker for m in linked.cluster.members.serving("m")] == serving)  # noqa: B023
    assert linked.names() == ["b"]


async def test_a_restarted_scheduler_is_found_again_and_takes_nobody_away_at_once(linked: Linked) -> None:
    await linked.scheduler.server.stop(0)
    await linked.until(lambda: not linked.cluster.members.overloaded("m"))
    state = scheduler_pb2.ClusterState(members=STATE.members[1:], pools=STATE.pools, epoch=1)
    restarted = ScriptedScheduler(linked.scheduler.address, state)
    await restarted.server.start()
    await linked.until(lambda: linked.cluster.members.overloaded("m"))
    assert linked.names() == ["a", "b"]
    await linked.until(lambda: linked.names() == ["b"])
    await restarted.server.stop(0)


async def test_a_worker_that_a_new_scheduler_does_not_know_is_a_member_while_its_session_lives(
    linked: Linked, worker: ScriptedWorker
) -> None:
    reached = scheduler_pb2.Member(worker="a", instance="a1", address=worker.address, models=[MODEL])
    linked.scheduler.say(scheduler_pb2.ClusterState(members=[reached, STATE.members[1]], epoch=1))
    await linked.until(lambda: reached in linked.cluster.members.all())
    placed = await linked.cluster.place(request())
    linked.cluster.link(placed).submit(worker_pb2.Submit(request_id="r", attempt=1), lambda event: None)
    await worker.commands.get()
    await linked.scheduler.server.stop(0)
    restarted = ScriptedScheduler(linked.scheduler.address, scheduler_pb2.ClusterState(epoch=2))
    await restarted.server.start()
    await linked.until(lambda: linked.names() != ["a", "b"])
    assert linked.names() == ["a"]
    await worker.server.stop(0)
    await linked.until(lambda: linked.names() == [])
    await restarted.server.stop(0)


@pytest.mark.usefixtures("patient")
async def test_the_highest_epoch_is_followed_and_a_lower_one_ignored() -> None:
    old = ScriptedScheduler("127.0.0.1:0", STATE)
    newcomer = scheduler_pb2.Member(worker="c", instance="c1", models=[scheduler_pb2.ModelInfo(name="n")])
    members = [STATE.members[1], newcomer]
    new = ScriptedScheduler("127.0.0.1:0", scheduler_pb2.ClusterState(epoch=2, members=members))
    standby = ScriptedScheduler("127.0.0.1:0", scheduler_pb2.ClusterState(epoch=0))
    for scheduler in (old, standby):
        await scheduler.server.start()
    changed = asyncio.Event()
    cluster = Cluster([old.address, new.address, standby.address], SECRET, changed.set)
    running = asyncio.create_task(cluster.run())
    while not len(cluster.members):
        changed.clear()
        await changed.wait()
    await new.server.start()
    while newcomer not in cluster.members.all():
        changed.clear()
        await changed.wait()
    old.say(scheduler_pb2.ClusterState(epoch=1, members=STATE.members[:1]))
    placing = asyncio.create_task(cluster.place(request("to the new one")))
    assert (await new.batches.get()).requests[0].request_id == "to the new one"
    reply = scheduler_pb2.DispatchReply(request_id="to the new one", attempt=1, worker="b", address="127.0.0.1:2")
    new.replies.put_nowait(scheduler_pb2.DispatchReplies(replies=[reply]))
    assert (await placing).worker == "b"
    await new.server.stop(0)
    assert (await cluster.place(request("to nobody"))).worker in ("a", "b")
    assert old.batches.empty(), "an older epoch is not asked, not even for want of another"
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    await cluster.close()
    for scheduler in (old, standby):
        await scheduler.server.stop(0)


async def test_of_two_that_lead_the_first_is_followed_until_it_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    first, second = (
        ScriptedScheduler("127.0.0.1:0", scheduler_pb2.ClusterState(epoch=1, members=[member]))
        for member in STATE.members
    )
    changed = asyncio.Event()
    cluster = Cluster([first.address, second.address], SECRET, changed.set)
    running = asyncio.create_task(cluster.run())

    async def until(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110  # a log line sets no event
                await asyncio.sleep(0.01)

    await first.server.start()
    await until(lambda: len(cluster.members) == 1)
    await second.server.start()
    await until(lambda: "two schedulers lead at once" in caplog.text)
    assert [member.worker for member in cluster.members.all()] == ["a"]
    await first.server.stop(0)
    await until(lambda: caplog.text.count("scheduler is away") == 2)  # Dispatch and Watch: else the second is ignored
    second.say(scheduler_pb2.ClusterState(epoch=1, members=STATE.members[1:]))
    await until(lambda: "b" in [member.worker for member in cluster.members.all()])
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    await cluster.close()
    await second.server.stop(0)
