"""Adapters that attach to a picker: requests of Fairlead's gateways count for clients and engines, to their ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from endpoint_picker.adapter_reports import AdapterReports
from endpoint_picker.app import endpoint_source, make_picker, serving
from endpoint_picker.config import PickerConfig
from endpoint_picker.core.endpoint_pool import Pick
from endpoint_picker.core.picker_queue import background
from endpoint_picker.core.service_counters import ServiceCounters
from endpoint_picker.picker import Picker
from endpoint_picker.request_body import Prompt
from fairlead.v1 import scheduler_pb2, scheduler_pb2_grpc
from global_scheduler.leadership import SoleLeadership
from serving.config import ConfigError
from serving.rpc.channel import secret_metadata
from tests.fakes.served_engine.process import EngineProcess
from tests.metrics import samples, scrape
from tests.services import SECRET, Process, eventually

A, B = "10.0.0.1:8000", "10.0.0.2:8000"
MODEL = scheduler_pb2.ModelInfo(name="m", block_tokens=16, kv_tokens=1600, max_running=8)


def accepted(
    name: str, client: str = "ann", prompt_tokens: int = 10, *, background: bool = False
) -> scheduler_pb2.AcceptedRequest:
    return scheduler_pb2.AcceptedRequest(
        request_id=name,
        attempt=1,
        client=client,
        prompt_tokens=prompt_tokens,
        weight=1.0,
        model="m",
        background=background,
    )


def ended(name: str, output_tokens: int) -> scheduler_pb2.RequestEnd:
    return scheduler_pb2.RequestEnd(
        request_id=name, attempt=1, started=bool(output_tokens), output_tokens=output_tokens
    )


class Adapter:
    """One stream of an adapter beside the engine at `endpoint`."""

    def __init__(self, channel: grpc.aio.Channel, secret: str = SECRET) -> None:
        self.call: Any = scheduler_pb2_grpc.SchedulerStub(channel).Attach(metadata=secret_metadata(secret))

    async def hello(self, endpoint: str, *requests: scheduler_pb2.AcceptedRequest) -> None:
        hello = scheduler_pb2.Hello(
            worker="w",
            instance="i",
            address="10.0.0.1:7000",
            models=[MODEL],
            requests=requests,
            engine_address=endpoint,
        )
        await self.call.write(scheduler_pb2.WorkerReport(hello=hello))
        assert (await self.call.read()).HasField("attached")

    async def progress(self, **fields: Any) -> None:
        await self.call.write(scheduler_pb2.WorkerReport(progress=scheduler_pb2.Progress(**fields)))

    async def waits(self, requests: int) -> None:
        await self.call.write(scheduler_pb2.WorkerReport(load=scheduler_pb2.Load(waiting=requests)))


class Pool:
    """A picker that serves in this process, and a connection to it."""

    def __init__(
        self, picker: Picker, counters: ServiceCounters, adapters: AdapterReports, channel: grpc.aio.Channel
    ) -> None:
        self.picker = picker
        self.counters = counters
        self.adapters = adapters
        self.channel = channel

    async def until(self, outstanding: list[int]) -> None:
        """Wait until the endpoints have so many requests."""
        async with asyncio.timeout(60):
            while True:
                self.picker.pool.check_invariants()
                if [self.picker.pool.outstanding(each) for each in (A, B)] == outstanding:
                    return
                await asyncio.sleep(0.001)

    async def place(self, client: str) -> Pick:
        return await self.picker.place(client, 1000, Prompt(), None)


@asynccontextmanager
async def pool(**options: Any) -> AsyncIterator[Pool]:
    config = PickerConfig(listen="127.0.0.1:0", endpoints=f"{A},{B}", secret=SECRET, **options)
    counters = ServiceCounters()
    picker = make_picker(config, counters)
    adapters = AdapterReports(picker)
    async with (
        serving(config, picker, endpoint_source(config), SoleLeadership(), adapters=adapters) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        yield Pool(picker, counters, adapters, channel)


async def test_requests_of_gateways_count_at_their_engines_until_they_end() -> None:
    async with pool() as tried:
        adapter = Adapter(tried.channel)
        await adapter.hello(A, accepted("before"))
        await tried.until([1, 0])
        assert tried.adapters.attached == 1
        malformed = scheduler_pb2.AcceptedRequest(request_id="bad", attempt=1, weight=-1.0)
        await adapter.progress(accepted=[accepted("one"), malformed, accepted("two"), accepted("one")])
        await tried.until([3, 0])
        await adapter.progress(ended=[ended("one", 5), ended("two", 0), ended("never heard of", 1)])
        await tried.until([1, 0])
        await adapter.call.done_writing()
        await tried.until([0, 0])
        assert await adapter.call.read() is grpc.aio.EOF
        assert tried.adapters.attached == 0


async def test_background_requests_of_gateways_are_charged_as_such() -> None:
    async with pool() as tried:
        adapter = Adapter(tried.channel)
        await adapter.hello(A, accepted("background", background=True), accepted("interactive", "bob"))
        await tried.until([2, 0])
        charged = {name: tried.counters[name] for name in ("ann", background("ann"), "bob", background("bob"))}
        assert charged == {"ann": 0, background("ann"): 10_000_000, "bob": 10_000_000, background("bob"): 0}


async def test_service_through_gateways_sends_a_clients_next_requests_elsewhere() -> None:
    """DoubleQ: ann has used up her quantum at A, by the tokens that the adapter reports."""
    async with pool(policy="doubleq", quantum_tokens=100) as tried:
        first = await tried.place("ann")
        assert first.endpoint == A
        tried.picker.refused(first)
        adapter = Adapter(tried.channel)
        await adapter.hello(A)
        await adapter.progress(accepted=[accepted("one"), accepted("two")])
        await tried.until([2, 0])
        await adapter.progress(ended=[ended("one", 400)])
        await tried.until([1, 0])
        await adapter.progress(ended=[ended("two", 1)])
        await tried.until([0, 0])
        assert (await tried.place("ann")).endpoint == B


async def test_those_that_wait_beside_an_engine_take_no_room_in_it() -> None:
    async with pool(max_running=1) as tried:
        adapter = Adapter(tried.channel)
        await adapter.hello(A, accepted("one"), accepted("two"))
        await tried.until([2, 0])
        assert (await tried.place("bob")).endpoint == B
        placing = asyncio.create_task(tried.place("bob"))
        await adapter.waits(2)
        assert (await placing).endpoint == A


async def test_an_adapter_that_attaches_again_has_only_what_it_says_then() -> None:
    async with pool() as tried:
        first, second = Adapter(tried.channel), Adapter(tried.channel)
        await first.hello(A, accepted("one"), accepted("two"))
        await tried.until([2, 0])
        await second.hello(A, accepted("two"))
        await tried.until([1, 0])
        await first.progress(accepted=[accepted("late")])
        await first.call.done_writing()
        assert await first.call.read() is grpc.aio.EOF
        await tried.until([1, 0])
        assert tried.adapters.attached == 1


async def test_engines_that_are_no_endpoints_count_nowhere() -> None:
    async with pool() as tried:
        adapter = Adapter(tried.channel)
        await adapter.hello("10.9.9.9:8000", accepted("one"))
        await adapter.progress(ended=[ended("one", 5)])
        await adapter.call.done_writing()
        assert await adapter.call.read() is grpc.aio.EOF
        await tried.until([0, 0])


async def test_who_has_not_the_secret_or_no_engine_is_refused() -> None:
    async with pool() as tried:
        # The metadata suffices for a refusal. A message on its way then could fail first, with a status of its own.
        refused = Adapter(tried.channel, "another secret of 16")
        assert await refused.call.code() is grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await Adapter(tried.channel).hello("")
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "hello.engine_address" in (raised.value.details() or "")


@pytest.mark.e2e
def test_an_adapter_attaches_to_every_picker(tmp_path: Path) -> None:
    """Processes: the pickers know the engine beside which it is by the address that the adapter tells."""
    engine = EngineProcess(tmp_path / "engine.log", events=False)
    shared = {"listen": "127.0.0.1:0", "secret": SECRET}
    settings: dict[str, object] = {**shared, "metrics": "127.0.0.1:0", "endpoints": engine.address}
    pickers = [Process("endpoint_picker", tmp_path / f"picker-{n}.log", settings) for n in range(2)]
    named = ",".join(picker.address for picker in pickers)
    told: dict[str, object] = {**shared, "engine": engine.address, "pickers": named, "scheduler": "", "max_running": 8}
    adapter = Process("engine_adapter", tmp_path / "adapter.log", told)
    try:
        for picker in pickers:
            port = picker.wait_for("listening")["metrics_port"]
            eventually(lambda: attached(port) == [1], "the adapter attaches")  # noqa: B023
        assert not adapter.logged("scheduler is away")
    finally:
        for process in (adapter, *pickers):
            process.kill()
        engine.kill()


def attached(metrics_port: int) -> list[float]:
    return [count for _, count in samples(scrape(metrics_port)[1])["fairlead_picker_adapters"]]


def test_a_secret_is_long_enough() -> None:
    with pytest.raises(ConfigError, match="secret: needs at least 16 characters"):
        PickerConfig(endpoints=A, secret="short")
