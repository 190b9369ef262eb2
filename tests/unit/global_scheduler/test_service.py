"""The scheduler as gateways and workers meet it: a real process, real gRPC."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from fairlead.v1 import scheduler_pb2 as pb
from fairlead.v1 import scheduler_pb2_grpc
from global_scheduler.app import main, make_server, make_service
from global_scheduler.config import SchedulerConfig
from global_scheduler.core import overload
from serving.blocks import pack_digests, reversed_digests
from serving.rpc.channel import open_channel, secret_metadata
from serving.rpc.server import Server
from tests.services import DEADLINE

SECRET = "a-secret-for-tests-only"
METADATA = secret_metadata(SECRET)
CHAIN = pack_digests([1, 2, 3])


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    """Workers of these tests report only what a test is about: what they have said counts until its end."""
    monkeypatch.setattr(overload, "FRESH_SECONDS", DEADLINE)
    config = SchedulerConfig(listen="127.0.0.1:0", secret=SECRET)
    scheduler = make_service(config, stall_timeout=DEADLINE)
    made = make_server(config, scheduler)
    await made.start()
    await made.set_ready(True)
    watching = asyncio.create_task(scheduler.run())
    yield made
    watching.cancel()
    await made.stop(0)


@pytest.fixture
async def channel(server: Server) -> AsyncIterator[grpc.aio.Channel]:
    async with open_channel(f"127.0.0.1:{server.port}") as opened:
        yield opened


def hello(worker: str = "w1", **fields: Any) -> pb.WorkerReport:
    model = pb.ModelInfo(name="m", block_tokens=16, kv_tokens=1000, max_running=8)
    said: dict[str, Any] = {"worker": worker, "instance": "1", "address": f"{worker}:1", "models": [model]} | fields
    return pb.WorkerReport(hello=pb.Hello(**said))


async def attach(channel: grpc.aio.Channel, worker: str = "w1") -> Any:
    call = scheduler_pb2_grpc.SchedulerStub(channel).Attach(metadata=METADATA)
    await call.write(hello(worker))
    assert (await call.read()).HasField("attached")
    return call


def request(name: str, **fields: Any) -> pb.DispatchRequest:
    values: dict[str, Any] = {
        "attempt": 1,
        "client": "ann",
        "model": "m",
        "digests": CHAIN,
        "prompt_tokens": 50,
        "weight": 1.0,
    }
    return pb.DispatchRequest(request_id=name, **(values | fields))


async def dispatch(call: Any, *requests: pb.DispatchRequest) -> list[pb.DispatchReply]:
    await call.write(pb.DispatchBatch(requests=requests))
    return list((await call.read()).replies)


async def until(call: Any, condition: Callable[[pb.ClusterState], bool]) -> pb.ClusterState:
    while True:
        state = await call.read()
        assert state is not grpc.aio.EOF
        if condition(state):
            return state


async def until_status(channel: grpc.aio.Channel, condition: Callable[[pb.ClusterState], bool]) -> pb.ClusterState:
    """Return the cluster as operators see it, with loads, once it meets the condition."""
    admin = scheduler_pb2_grpc.AdminStub(channel)
    while True:
        cluster = (await admin.Status(pb.StatusRequest(), metadata=METADATA)).cluster
        if condition(cluster):
            return cluster


async def test_membership_follows_the_workers_stream(channel: grpc.aio.Channel) -> None:
    stub = scheduler_pb2_grpc.SchedulerStub(channel)
    watch = stub.Watch(pb.WatchRequest(), metadata=METADATA)
    assert not (await watch.read()).members
    gateway = stub.Dispatch(metadata=METADATA)
    assert [(r.worker, r.unplaced) for r in await dispatch(gateway, request("0"))] == [("", pb.UNPLACED_NO_WORKER)]
    worker = await attach(channel)
    state = await until(watch, lambda s: len(s.members) == 1)
    assert (state.members[0].worker, [(p.model, p.overloaded) for p in state.pools]) == ("w1", [("m", False)])
    replies = await dispatch(gateway, request("1"), request("2"))
    assert [(r.request_id, r.worker, r.address, r.matched_tokens) for r in replies] == [
        ("1", "w1", "w1:1", 0),
        ("2", "w1", "w1:1", 48),
    ]
    worker.cancel()
    await until(watch, lambda s: not s.members)
    assert [r.worker for r in await dispatch(gateway, request("3"))] == [""]


async def test_gateways_that_take_changes_are_told_what_changed(channel: grpc.aio.Channel) -> None:
    watch = scheduler_pb2_grpc.SchedulerStub(channel).Watch(pb.WatchRequest(takes_changes=True), metadata=METADATA)
    first = await watch.read()
    assert (len(first.members), first.is_change) == (0, False)
    one = await attach(channel, "w1")
    assert [member.worker for member in (await until(watch, lambda s: bool(s.members))).members] == ["w1"]
    two = await attach(channel, "w2")
    change = await until(watch, lambda s: bool(s.members))
    assert ([member.worker for member in change.members], change.is_change) == (["w2"], True)
    await one.write(pb.WorkerReport(load=pb.Load(draining=True)))
    drained = (await until(watch, lambda s: bool(s.members))).members
    assert [(member.worker, member.load.draining) for member in drained] == [("w1", True)]
    two.cancel()
    assert list((await until(watch, lambda s: bool(s.left))).left) == ["w2"]


def info(model: str, **fields: Any) -> pb.ModelInfo:
    return pb.ModelInfo(**{"name": model, "block_tokens": 16, "kv_tokens": 1000, "max_running": 8, **fields})


async def test_a_worker_of_two_models_gets_the_requests_of_both(channel: grpc.aio.Channel) -> None:
    """Beside one that serves one of them."""
    stub = scheduler_pb2_grpc.SchedulerStub(channel)
    watch = stub.Watch(pb.WatchRequest(), metadata=METADATA)
    gateway = stub.Dispatch(metadata=METADATA)
    both = stub.Attach(metadata=METADATA)
    await both.write(hello("both", models=[info("m", revision="r1"), info("n", revision="r2")]))
    assert (await both.read()).HasField("attached")
    single = await attach(channel, "single")
    state = await until(watch, lambda s: len(s.members) == 2)
    served = {member.worker: [model.name for model in member.models] for member in state.members}
    assert served == {"both": ["m", "n"], "single": ["m"]}
    assert [(member.model.name, member.worker) for member in state.members] == [("m", "both"), ("m", "single")]
    assert [pool.model for pool in state.pools] == ["m", "n"]

    alone = {"model": "n", "revision": "r2"}
    replies = await dispatch(gateway, request("1", **alone), request("2", **alone))
    assert [(reply.worker, reply.matched_tokens) for reply in replies] == [("both", 0), ("both", 48)]
    # A standby hears of requests by model; one that its worker does not serve is nobody's.
    accepted = [
        pb.AcceptedRequest(request_id=model, attempt=1, client="bob", prompt_tokens=9, weight=1, model=model)
        for model in ("n", "nobody's")
    ]
    await both.write(pb.WorkerReport(progress=pb.Progress(accepted=accepted)))
    await both.write(pb.WorkerReport(load=pb.Load(waiting=7)))
    await until_status(channel, lambda s: any(member.load.waiting == 7 for member in s.members))
    admin = scheduler_pb2_grpc.AdminStub(channel)
    assert (await admin.Status(pb.StatusRequest(), metadata=METADATA)).placed_by_others == 1

    both.cancel()
    await until(watch, lambda s: [member.worker for member in s.members] == ["single"])
    last = await dispatch(gateway, request("3"), request("4", **alone))
    assert [(reply.worker, reply.unplaced) for reply in last] == [
        ("single", pb.UNPLACED_UNSPECIFIED),
        ("", pb.UNPLACED_NO_WORKER),
    ]
    single.cancel()


@pytest.mark.parametrize(
    ("models", "problem"),
    [
        ([], "hello.models: must be given"),
        ([info("m"), info("")], "hello.models.name: must be given"),
        ([info("m"), info("m")], "hello.models.name: each must have a name of its own, got m, m"),
        (
            [info("m"), info("n", kv_tokens=9)],
            r"hello.models.kv_tokens: must be the same of all models of a worker, got 1000 \(m\) and 9 \(n\)",
        ),
    ],
)
async def test_models_that_cannot_be_of_one_worker_are_refused(
    channel: grpc.aio.Channel, models: list[pb.ModelInfo], problem: str
) -> None:
    call = scheduler_pb2_grpc.SchedulerStub(channel).Attach(metadata=METADATA)
    await call.write(hello(models=models))
    with pytest.raises(grpc.aio.AioRpcError, match=problem):
        await call.read()


async def test_overload_and_draining_reach_watchers_and_loads_and_service_the_operator(
    channel: grpc.aio.Channel,
) -> None:
    worker = await attach(channel)
    watch = scheduler_pb2_grpc.SchedulerStub(channel).Watch(pb.WatchRequest(), metadata=METADATA)
    ann, bob = pb.ClientService(client="ann", service=3), pb.ClientService(client="bob", service=5)
    for services in ([ann], [bob]):
        await worker.write(pb.WorkerReport(load=pb.Load(waiting=1, queue_seconds=9, services=services)))
    state = await until(watch, lambda s: s.pools[0].overloaded)
    assert state.members[0].load == pb.Load(), "gateways need no load"
    assert (await watch.read()).pools[0].overloaded, "told again, unchanged, for as long as it lasts"
    await worker.write(pb.WorkerReport(load=pb.Load(draining=True)))
    await until(watch, lambda s: s.members[0].load.draining)
    status = await scheduler_pb2_grpc.AdminStub(channel).Status(pb.StatusRequest(), metadata=METADATA)
    assert (status.policy, status.clients) == ("least-delay", 2)
    assert status.cluster.members[0].load == pb.Load(draining=True)
    assert [(s.worker, list(s.clients)) for s in status.services] == [("w1", [ann, bob])]


async def test_service_goes_with_the_worker_and_an_earlier_stream_of_it_says_no_more(
    channel: grpc.aio.Channel,
) -> None:
    admin, earlier = scheduler_pb2_grpc.AdminStub(channel), await attach(channel)
    ann, bob = pb.ClientService(client="ann", service=3), pb.ClientService(client="bob", service=5)
    await earlier.write(pb.WorkerReport(load=pb.Load(services=[ann])))
    worker = await attach(channel)
    await worker.write(pb.WorkerReport(load=pb.Load(running=1, services=[bob])))
    watch = scheduler_pb2_grpc.SchedulerStub(channel).Watch(pb.WatchRequest(), metadata=METADATA)
    await until_status(channel, lambda s: s.members[0].load.running == 1)
    status = await admin.Status(pb.StatusRequest(), metadata=METADATA)
    assert [list(s.clients) for s in status.services] == [[bob]]
    worker.cancel()
    await until(watch, lambda s: not s.members)
    status = await admin.Status(pb.StatusRequest(), metadata=METADATA)
    assert (list(status.services), status.clients) == ([], 0)


async def test_clients_are_listed_with_their_sums_over_all_workers(channel: grpc.aio.Channel) -> None:
    stub = scheduler_pb2_grpc.AdminStub(channel)
    workers = [await attach(channel, name) for name in ("w1", "w2")]
    for worker, waiting in zip(workers, (2, 0), strict=True):
        ann = pb.ClientService(client="ann", service=3, weighted_service=6, waiting=waiting, running=1)
        bob = pb.ClientService(client="bob", service=5, weighted_service=5)
        await worker.write(pb.WorkerReport(load=pb.Load(running=1, services=[ann, bob])))
    await until_status(channel, lambda state: [member.load.running for member in state.members] == [1, 1])
    answer = await stub.ListClients(pb.ListClientsRequest(most=10), metadata=METADATA)
    assert [(member.worker, member.load.running) for member in answer.cluster.members] == [("w1", 1), ("w2", 1)]
    assert (answer.cluster.epoch > 0, answer.policy, answer.remembered) == (True, "least-delay", 2)
    ann, bob = answer.clients
    assert (ann.service, ann.weighted_service, ann.running, list(ann.waiting)) == (6, 12, 2, [2, 0])
    assert (bob.client, bob.service, list(bob.waiting)) == ("bob", 10, []), "it has no request"
    answer = await stub.ListClients(pb.ListClientsRequest(most=1), metadata=METADATA)
    assert [client.client for client in answer.clients] == ["ann"], "those with requests come first"


async def test_progress_moves_the_index(channel: grpc.aio.Channel) -> None:
    worker = await attach(channel)
    gateway = scheduler_pb2_grpc.SchedulerStub(channel).Dispatch(metadata=METADATA)
    on_host, none = (
        pb.SlowerBlocks(tier=1, cached=[pb.BlockRun(digests=CHAIN)]),
        pb.SlowerBlocks(tier=1, evicted=reversed_digests(CHAIN)),
    )
    steps = [
        (pb.Progress(cached=[pb.BlockRun(digests=CHAIN)]), 48),
        (pb.Progress(evicted=pack_digests([3])), 32),
        (pb.Progress(evicted=pack_digests([2, 1])), 0),
        (pb.Progress(slower=[on_host]), 32),  # three blocks, less what it costs to load them
        (pb.Progress(slower=[none, pb.SlowerBlocks(tier=99, cached=[pb.BlockRun(digests=CHAIN)])]), 0),
    ]
    for number, (progress, matched) in enumerate(steps, start=1):
        await worker.write(pb.WorkerReport(progress=progress))
        # A load behind it on the same stream says when the progress has been read.
        await worker.write(pb.WorkerReport(load=pb.Load(running=number)))
        await until_status(channel, lambda s, number=number: s.members[0].load.running == number)  # type: ignore[misc]
        (reply,) = await dispatch(gateway, request(str(number)))
        assert reply.matched_tokens == matched
        await gateway.write(pb.DispatchBatch(withdrawals=[pb.Withdrawal(request_id=str(number), attempt=1)]))


async def test_a_prompt_that_a_worker_has_computed_draws_no_request_to_another(channel: grpc.aio.Channel) -> None:
    worker, _ = await attach(channel), await attach(channel, "w2")
    gateway = scheduler_pb2_grpc.SchedulerStub(channel).Dispatch(metadata=METADATA)

    async def placed(name: str, prompt_tokens: int) -> str:
        (reply,) = await dispatch(gateway, request(name, digests=b"", prompt_tokens=prompt_tokens))
        return reply.worker

    assert [await placed("long", 5000), await placed("short", 100), await placed("shorter", 50)] == ["w1", "w2", "w2"]
    computed = [pb.ComputedPrompt(request_id="long", attempt=1), pb.ComputedPrompt(request_id="unknown", attempt=1)]
    await worker.write(pb.WorkerReport(progress=pb.Progress(computed=computed)))
    await worker.write(pb.WorkerReport(load=pb.Load(running=1)))
    await until_status(channel, lambda status: status.members[0].load.running == 1)
    assert await placed("last", 50) == "w1"


MALFORMED = [
    request("1", digests=b"odd"),
    request("1", weight=0.0),
    request("1", weight=float("nan")),
    request("1", weight=2e6),
    request(""),
]


@pytest.mark.parametrize("bad", MALFORMED)
async def test_a_malformed_request_is_answered_alone(channel: grpc.aio.Channel, bad: pb.DispatchRequest) -> None:
    await attach(channel)
    call = scheduler_pb2_grpc.SchedulerStub(channel).Dispatch(metadata=METADATA)
    refused, placed = await dispatch(call, bad, request("good"))
    assert (refused.worker, refused.unplaced) == ("", pb.UNPLACED_MALFORMED)
    assert refused.problem.startswith("requests.")
    assert (placed.worker, placed.unplaced) == ("w1", pb.UNPLACED_UNSPECIFIED)
    assert [reply.worker for reply in await dispatch(call, request("2"))] == ["w1"]


async def test_requests_placed_by_others_are_counted(channel: grpc.aio.Channel) -> None:
    worker, admin = await attach(channel), scheduler_pb2_grpc.AdminStub(channel)
    gateway = scheduler_pb2_grpc.SchedulerStub(channel).Dispatch(metadata=METADATA)
    await dispatch(gateway, request("mine"))
    accepted = [
        pb.AcceptedRequest(request_id=name, attempt=1, client="ann", weight=1.0, model="m")
        for name in ("mine", "theirs", "theirs")
    ]
    await worker.write(pb.WorkerReport(progress=pb.Progress(accepted=accepted)))
    await worker.write(pb.WorkerReport(load=pb.Load(running=2)))
    await until_status(channel, lambda s: bool(s.members) and s.members[0].load.running == 2)
    assert (await admin.Status(pb.StatusRequest(), metadata=METADATA)).placed_by_others == 1


async def test_a_malformed_accepted_request_costs_no_worker_its_place(channel: grpc.aio.Channel) -> None:
    accepted = [
        pb.AcceptedRequest(request_id=name, attempt=1, client="a", weight=weight, model="m")
        for name, weight in (("heavy", 2e6), ("good", 1.0))
    ]
    stub = scheduler_pb2_grpc.SchedulerStub(channel)
    call = stub.Attach(metadata=METADATA)
    await call.write(hello(requests=accepted))
    await call.write(pb.WorkerReport(progress=pb.Progress(accepted=accepted)))
    await call.write(pb.WorkerReport(load=pb.Load(running=7)))
    await until_status(channel, lambda s: len(s.members) == 1 and s.members[0].load.running == 7)


async def test_a_dispatch_given_up_before_it_was_sent_is_not_booked(channel: grpc.aio.Channel) -> None:
    await attach(channel)
    call = scheduler_pb2_grpc.SchedulerStub(channel).Dispatch(metadata=METADATA)
    await call.write(pb.DispatchBatch(requests=[request("1")], withdrawals=[pb.Withdrawal(request_id="1", attempt=1)]))
    assert [reply.worker for reply in (await call.read()).replies] == ["w1"]
    assert [reply.matched_tokens for reply in await dispatch(call, request("2"))] == [0], "its blocks are not expected"


ODD = pb.BlockRun(digests=b"odd")
BAD_REPORTS = [
    [pb.WorkerReport(load=pb.Load())],
    [pb.WorkerReport()],
    [hello(address="")],
    [hello(cached=[ODD])],
    [hello(), hello()],
    [hello(), pb.WorkerReport(progress=pb.Progress(evicted=b"odd"))],
    [hello(), pb.WorkerReport(progress=pb.Progress(cached=[ODD]))],
]


@pytest.mark.parametrize("reports", BAD_REPORTS)
async def test_malformed_reports_end_the_attachment(channel: grpc.aio.Channel, reports: list[pb.WorkerReport]) -> None:
    stub = scheduler_pb2_grpc.SchedulerStub(channel)
    call = stub.Attach(iter(reports), metadata=METADATA)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        async for _ in call:
            pass
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    await until(stub.Watch(pb.WatchRequest(), metadata=METADATA), lambda s: not s.members)


async def test_only_the_secret_opens_it_but_health_and_reflection_are_open(channel: grpc.aio.Channel) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await scheduler_pb2_grpc.AdminStub(channel).Status(pb.StatusRequest())
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    question = reflection_pb2.ServerReflectionRequest(list_services="")
    async for listed in reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([question])):
        names = {service.name for service in listed.list_services_response.service}
        assert {"fairlead.v1.Scheduler", "fairlead.v1.Admin"} <= names


async def test_a_worker_with_another_cost_is_warned_of_once(
    channel: grpc.aio.Channel, caplog: pytest.LogCaptureFixture
) -> None:
    own, other = "weighted-tokens:1,2", "normalized:1,3,1"
    for worker, cost in (("w1", ""), ("w2", own), ("w3", other), ("w4", other)):
        call = scheduler_pb2_grpc.SchedulerStub(channel).Attach(metadata=METADATA)
        model = pb.ModelInfo(name="m", block_tokens=16, kv_tokens=1000, max_running=8, cost=cost)
        await call.write(hello(worker, models=[model]))
        assert (await call.read()).HasField("attached")
    (warning,) = [record for record in caplog.records if "cost" in record.message]
    assert (warning.worker, warning.worker_cost, warning.cost) == ("w3", other, own)  # type: ignore[attr-defined]


def test_a_short_secret_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("FAIRLEAD_SECRET", raising=False)
    assert main(["--listen", "127.0.0.1:0"]) == 2
    assert capsys.readouterr().err == "configuration: secret: needs at least 16 characters (FAIRLEAD_SECRET)\n"
